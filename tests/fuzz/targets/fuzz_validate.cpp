// SPDX-License-Identifier: Apache-2.0
// validate and plan of every op over hostile arguments: a plan or a quire::Error, nothing else. The input's first byte
// chooses a valid call, the rest what happens to it.
#include <functional>
#include <memory>

#include "fuzz/targets/hostile.h"
#include "ops/sample.h"
#include "ops/sample_attention.h"
#include "ops/sample_cache_ops.h"
#include "ops/sample_index_rows.h"
#include "ops/sample_latent.h"
#include "ops/sample_linear.h"
#include "ops/sample_qkv.h"
#include "ops/sample_row_ops.h"
#include "quire/error.h"

namespace quire::test {
namespace {

using Attempt = std::function<void(Draw&)>;

// Views of a GPU's memory, at addresses where a host that reads them dies.
template <typename Args> void move_to_gpu(Args& args) {
  std::uintptr_t address = 0;
  for_tensors(args, [&](TensorView& view) {
    view.device = {.kind = DeviceKind::cuda, .index = 0};
    view.data = reinterpret_cast<void*>(address += std::uintptr_t{1} << 40);
  });
}

template <typename Args> Attempt attempt_on(const Args& valid) {
  const auto grounds = std::make_shared<Grounds>();
  Args copy = valid;
  for_tensors(copy, [&](const TensorView& view) { grounds->add(view); });
  return [valid, grounds](Draw& draw) {
    constexpr std::int64_t kMostFields = 48;  // more than any op has
    Args args = valid;
    grounds->forget();
    if (draw.one_in(4)) move_to_gpu(args);
    for (std::int64_t count = draw.between(1, 4); count > 0; --count) {
      for_fields(args, Spoiler(draw, *grounds, draw.below(kMostFields)));
    }
    for_tensors(args, [&](TensorView& view) { grounds->ground(view); });
    Context context;
    if (draw.one_in(8)) context.kernel = draw.pick<const char*>({"cpu", "reference", "none"});
    if (draw.one_in(16)) context.num_threads = static_cast<int>(hostile_integer(draw));
    static_cast<void>(supports(args, context));
  };
}

template <typename... Samples> struct Casts {
  // The arguments of whichever of the types the sample is.
  static Attempt find(Sample& sample) {
    Attempt attempt;
    const auto try_type = [&]<typename S>(S* found) {
      if (found != nullptr) attempt = attempt_on(found->args);
    };
    (try_type(dynamic_cast<Samples*>(&sample)), ...);
    return attempt;
  }
};

using KnownSamples =
    Casts<FusedQkvBase, FlashAttentionBase, MlaPrefillPlanSample, MlaPrefillSample, MlaDecodeSample,
          MlaIndexerSample, SparseMlaSample, RopeSample, RmsNormSample, StoreSample,
          StoreSlotsSample, StoreScalesSample, CopyPagesSample, RemapSparseIndicesSample,
          MergeStatesSample, QuantizeFp8Sample, StoreIndexKeysSample, QuantizeIndexQueriesSample,
          RowOffsetsSample, LinearBase>;

struct Attempts {
  std::vector<std::unique_ptr<Sample>> samples{};  // own the memory
  std::vector<Attempt> attempts{};

  Attempts() {
    for (const NamedSample& named : all_samples()) {
      samples.push_back(named.make());
      attempts.push_back(KnownSamples::find(*samples.back()));
    }
  }
};

}  // namespace
}  // namespace quire::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const quire::test::Attempts all;
  if (size == 0) return 0;
  quire::test::Draw draw(std::span(data + 1, size - 1));
  try {
    all.attempts[data[0] % all.attempts.size()](draw);
  } catch (const quire::Error&) {
    return 0;  // refused by name
  }
  return 0;
}
