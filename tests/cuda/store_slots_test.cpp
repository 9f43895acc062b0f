// SPDX-License-Identifier: Apache-2.0
// store of K and V in one launch, and by slots, on the GPU: two caches with the same memory, compared whole with what the
// reference leaves on the host. Skipped where there is no GPU.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "cuda/common/runtime/device_facts.h"
#include "cuda/common/runtime/status.h"
#include "device_twin.h"
#include "quire/ops/store.h"
#include "reference/store.h"
#include "support/cache_builder.h"
#include "support/host_tensor.h"
#include "tools/device/cuda/stream.h"

namespace quire::cuda {
namespace {

using test::CacheOptions;
using test::HostTensor;
using test::TestCache;

// A row format that one of the kernels takes.
struct Subject {
  std::string name;
  RowFormat format;
  DType x_dtype = DType::bf16;
  std::int64_t heads = 2;
  bool is_mla = false;
  bool heads_first = false;
  std::optional<double> static_scale{};
  std::int64_t padding = 0;  // columns between the heads of x
};

std::vector<Subject> all_subjects() {
  const auto fp8 = DType::fp8_e4m3;
  return {
      {.name = "copy", .format = RowFormat::uniform(DType::bf16, 128)},
      {.name = "copy_heads_first",
       .format = RowFormat::uniform(DType::f16, 64),
       .x_dtype = DType::f16,
       .heads = 8,
       .heads_first = true},
      {.name = "copy_of_codes", .format = RowFormat::uniform(fp8, 128), .x_dtype = fp8},
      {.name = "code_without_scales", .format = RowFormat::uniform(fp8, 128), .heads = 8},
      {.name = "code_by_granules", .format = RowFormat::scaled(fp8, 128, 32)},
      {.name = "code_whole_rows",
       .format = RowFormat::scaled(DType::fp8_e5m2, 64, 64),
       .x_dtype = DType::f16},
      {.name = "code_static", .format = RowFormat::scaled(fp8, 128, 128), .static_scale = 0.0125},
      {.name = "encode_i8", .format = RowFormat::scaled(DType::i8, 128, 128)},
      {.name = "encode_f32", .format = RowFormat::uniform(DType::bf16, 80), .x_dtype = DType::f32},
      {.name = "general", .format = RowFormat::scaled(fp8, 37, 5, DType::bf16), .heads = 3},
      {.name = "general_gaps", .format = RowFormat::uniform(DType::bf16, 64), .padding = 3},
      {.name = "rows_of_656", .format = RowFormat::mla_fp8_block(), .heads = 1, .is_mla = true},
      {.name = "pairs_of_656", .format = RowFormat::mla_fp8_block(), .heads = 1},
  };
}

// K and V as an engine has them: parts of one tensor.
class Pair {
 public:
  Pair(const Subject& subject, std::int64_t tokens)
      : memory_(HostTensor::random(
            subject.x_dtype,
            {tokens, 2 * subject.heads + 1, subject.format.width() + subject.padding}, 7, 30.0)),
        heads_(subject.heads),
        width_(subject.format.width()) {}

  TensorView key() const { return heads_from(memory_.view(), 0); }
  TensorView value() const { return heads_from(memory_.view(), heads_); }

 private:
  TensorView heads_from(TensorView view, std::int64_t first) const {
    view.data = view.as<std::byte>() + bytes_for(view.dtype, first * view.strides[1]);
    view.shape[1] = heads_;
    view.shape[2] = width_;
    return view;
  }

  HostTensor memory_;
  std::int64_t heads_;
  std::int64_t width_;
};

CacheOptions options_of(const Subject& subject) {
  CacheOptions options;
  options.cache_lengths = {5, 0, 9, 0, 2};
  options.new_tokens = {6, 0, 720, 1, 7};
  options.row_format = subject.format;
  options.num_kv_heads = subject.heads;
  options.is_mla = subject.is_mla;
  options.heads_first = subject.heads_first;
  options.static_scale = subject.static_scale;
  return options;
}

// Every ninth token skipped; `past`: every seventh at a slot that the pool does not have.
enum class Past : std::uint8_t { none, some };

HostTensor slots_of(const TestCache& cache, DType type, Past past) {
  HostTensor slots(type, {cache.num_tokens()});
  const PagedKVCache view = cache.view();
  const std::int64_t end = view.num_pages() * view.page_size();
  const auto* offsets = cache.row_offsets().as<const std::uint32_t>();
  for (std::int64_t b = 0; b < view.batch(); ++b) {
    for (std::int64_t token = offsets[b]; token < offsets[b + 1]; ++token) {
      const PageSlot place = view.pages().find(b, view.cache_length(b) + token - offsets[b]);
      std::int64_t slot = place.page * view.page_size() + place.slot;
      if (token % 9 == 4) slot = -token;
      if (past == Past::some && token % 7 == 3) slot = end + token - 3;
      if (past == Past::some && token % 7 == 5) slot = std::numeric_limits<std::int32_t>::max();
      if (past == Past::some && token % 7 == 6 && type == DType::i64) {
        slot = token % 2 == 0 ? std::numeric_limits<std::int64_t>::max()
                              : std::numeric_limits<std::int64_t>::min();
      }
      if (type == DType::i64) {
        slots.view().as<std::int64_t>()[token] = slot;
      } else {
        slots.view().as<std::int32_t>()[token] = static_cast<std::int32_t>(slot);
      }
    }
  }
  return slots;
}

class StoreSlots : public testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    const std::string reason = refuse_unless_sm80({.kind = DeviceKind::cuda, .index = 0});
    if (!reason.empty()) GTEST_SKIP() << reason;
  }

  // The same call on the GPU. The cache there is a copy of its start.
  static StoreArgs moved(test::DeviceTwin& twin, StoreArgs args, const PagedKVCache& start) {
    args.x = twin.move(args.x);
    if (args.value) args.value = twin.move(*args.value);
    if (args.slots) args.slots = twin.move(*args.slots);
    args.cache.blocks = twin.move(start.blocks);
    if (start.scales) args.cache.scales = twin.move(*start.scales);
    if (!args.slots) {
      args.row_offsets = twin.move(args.row_offsets);
      args.cache.cache_lengths = twin.move(start.cache_lengths);
      args.cache.page_table = twin.move(start.page_table);
    }
    return args;
  }

  void expect_same(const StoreArgs& on_host, const TestCache& wanted) {
    const TestCache cache(options_of(GetParam()));
    reference::store(on_host);
    test::DeviceTwin twin;
    store(moved(twin, on_host, cache.view()));
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    twin.bring_back();
    EXPECT_TRUE(cache.block_bytes() == wanted.block_bytes());
    EXPECT_TRUE(cache.scale_bytes() == wanted.scale_bytes());
  }

  static StoreArgs slotted(const TestCache& cache, const TensorView& x) {
    const PagedKVCache view = cache.view();
    return {.x = x,
            .cache = {.blocks = view.blocks, .scales = view.scales, .row_format = view.row_format},
            .layer = 1};
  }
};

TEST_P(StoreSlots, KeysAndValuesByLengths) {
  const TestCache wanted(options_of(GetParam()));
  const Pair pair(GetParam(), wanted.num_tokens());
  if (GetParam().is_mla) GTEST_SKIP() << "no values";
  expect_same({.x = pair.key(),
               .row_offsets = wanted.row_offsets(),
               .cache = wanted.view(),
               .layer = 1,
               .value = pair.value()},
              wanted);
}

TEST_P(StoreSlots, KeysAndValuesBySlots) {
  for (const DType type : {DType::i64, DType::i32}) {
    const TestCache wanted(options_of(GetParam()));
    const Pair pair(GetParam(), wanted.num_tokens());
    const HostTensor slots = slots_of(wanted, type, Past::none);
    StoreArgs args = slotted(wanted, pair.key());
    if (!GetParam().is_mla) args.value = pair.value();
    args.slots = slots.view();
    expect_same(args, wanted);
  }
}

TEST_P(StoreSlots, OneSideBySlots) {
  const TestCache wanted(options_of(GetParam()));
  const Pair pair(GetParam(), wanted.num_tokens());
  const HostTensor slots = slots_of(wanted, DType::i64, Past::none);
  StoreArgs args = slotted(wanted, pair.key());
  if (!GetParam().is_mla) args.side = KvSide::value;
  args.slots = slots.view();
  expect_same(args, wanted);
}

// Nobody checks what is on the GPU: it must not be written to outside of the pool.
TEST_P(StoreSlots, SlotsPastThePoolAreDropped) {
  for (const DType type : {DType::i64, DType::i32}) {
    const TestCache wanted(options_of(GetParam()));
    const Pair pair(GetParam(), wanted.num_tokens());
    const HostTensor slots = slots_of(wanted, type, Past::some);
    StoreArgs args = slotted(wanted, pair.key());
    if (!GetParam().is_mla) args.value = pair.value();
    args.slots = slots.view();
    expect_same(args, wanted);
  }
}

TEST_P(StoreSlots, APairIsOneLaunch) {
  const TestCache cache(options_of(GetParam()));
  const Pair pair(GetParam(), cache.num_tokens());
  const HostTensor slots = slots_of(cache, DType::i64, Past::none);
  StoreArgs args = slotted(cache, pair.key());
  if (!GetParam().is_mla) args.value = pair.value();
  args.slots = slots.view();
  test::DeviceTwin twin;
  args = moved(twin, args, cache.view());
  const Stream stream;
  Context context;
  context.stream = stream.get();
  const auto handle = static_cast<cudaStream_t>(context.stream);
  check(cudaStreamBeginCapture(handle, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  store(args, context);
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(handle, &graph), "cudaStreamEndCapture");
  std::size_t num_nodes = 0;
  check(cudaGraphGetNodes(graph, nullptr, &num_nodes), "cudaGraphGetNodes");
  check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  EXPECT_EQ(num_nodes, 1u);
}

INSTANTIATE_TEST_SUITE_P(Rows, StoreSlots, testing::ValuesIn(all_subjects()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace quire::cuda
