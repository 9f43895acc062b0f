// SPDX-License-Identifier: Apache-2.0
// validate and plan of every op over hostile arguments: a plan or a quire::Error, nothing else. The input's first byte
// chooses a valid call, the rest what happens to it. Builds with the CUDA backend plan for an H200 and an A100 that are
// not there, so that its planners are reached, too.
#include <functional>
#include <memory>

#ifdef QUIRE_FUZZ_CUDA
#include "cuda/common/runtime/device_facts.h"
#endif
#include "fuzz/targets/hostile.h"
#include "fuzz/targets/served_calls.h"
#include "ops/sample.h"
#include "ops/sample_attention.h"
#include "ops/sample_cache_ops.h"
#include "ops/sample_compress_keys.h"
#include "ops/sample_index_rows.h"
#include "ops/sample_latent.h"
#include "ops/sample_linear.h"
#include "ops/sample_qkv.h"
#include "ops/sample_row_ops.h"
#include "ops/sample_select_blocks.h"
#include "quire/error.h"

namespace quire::test {
namespace {

using Attempt = std::function<void(Draw&)>;

// Where the arguments are: planners of a GPU are asked where the memory is a GPU's.
enum class Memory { mostly_host, gpu };

template <typename Args>
Attempt attempt_on(const Args& valid, Memory memory = Memory::mostly_host) {
  const auto grounds = std::make_shared<Grounds>();
  Args copy = valid;
  for_tensors(copy, [&](const TensorView& view) { grounds->add(view); });
  return [valid, grounds, memory](Draw& draw) {
    constexpr std::int64_t kMostFields = 48;  // more than any op has
    Args args = valid;
    grounds->forget();
    const bool is_on_gpu = memory == Memory::gpu || draw.one_in(4);
    if (is_on_gpu) move_to_gpu(args, draw.one_in(4) ? 1 : 0);
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
          RowOffsetsSample, LinearBase, CompressKeysSample, SelectBlocksSample>;

struct Attempts {
#ifdef QUIRE_FUZZ_CUDA
  static constexpr int kNewDriver = 99000;
  cuda::PretendedDevice hopper{0,
                               {.name = "H200",
                                .compute_major = 9,
                                .compute_minor = 0,
                                .num_sms = 132,
                                .shared_bytes_per_block = 227 << 10,
                                .driver_cuda = kNewDriver}};
  cuda::PretendedDevice ampere{1,
                               {.name = "A100",
                                .compute_major = 8,
                                .compute_minor = 0,
                                .num_sms = 108,
                                .shared_bytes_per_block = 163 << 10,
                                .driver_cuda = kNewDriver}};
#endif
  std::vector<std::unique_ptr<Sample>> samples{};  // own the memory
  std::vector<Attempt> attempts{};

  Attempts() {
    for (const NamedSample& named : all_samples()) {
      samples.push_back(named.make());
      attempts.push_back(KnownSamples::find(*samples.back()));
    }
    add_served();
  }

  void add_served() {
    const RowFormat latents = RowFormat::uniform(DType::bf16, 576);
    const auto add = [this](const auto& args) {
      attempts.push_back(attempt_on(args, Memory::gpu));
    };
    for (const ServedSize size : {kDecode, kPrefill}) {
      add(served_flash_attention(size, DType::bf16, 128));
      add(served_flash_attention(size, DType::fp8_e4m3, 128));
      add(served_flash_attention(size, DType::bf16, 256));
      add(served_projection(size));
      add(served_linear(size));
      add(served_mla_decode(size, latents));
      add(served_mla_decode(size, RowFormat::mla_fp8_block()));
      add(served_mla_prefill(size));
      add(served_indexer(size));
      add(served_sparse_mla(size, latents));
      add(served_sparse_mla(size, RowFormat::mla_fp8_block()));
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
