// SPDX-License-Identifier: Apache-2.0
// The kernels of flash_attention over K and V of a ragged batch without pages: the same rows in pages give the same bits.
// Skipped where there is no GPU.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "cuda/common/runtime/device_facts.h"
#include "cuda/sm90/flash_attention/launch.h"
#include "device_twin.h"
#include "support/attention_inputs.h"

namespace quire::test {
namespace {

using cuda::DeviceBuffer;
namespace tiles = cuda::sm90::flash_attention;

// One side of a paged layer as [rows, heads, row], sequence after sequence, on the GPU. Rows behind the last one are NaN.
struct RaggedSide {
  RaggedSide(const KvLayerView& host, const std::vector<std::uint32_t>& offsets, std::int64_t rows)
      : row_bytes(host.row_format.row_bytes),
        heads(host.num_heads),
        memory(rows * heads * row_bytes) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(memory.bytes()), std::byte{0xff});
    std::byte* to = bytes.data();
    for (std::size_t sequence = 0; sequence + 1 < offsets.size(); ++sequence) {
      for (std::uint32_t key = 0; key < offsets[sequence + 1] - offsets[sequence]; ++key) {
        for (std::int64_t head = 0; head < heads; ++head, to += row_bytes) {
          std::memcpy(to, host.row(static_cast<std::int64_t>(sequence), key, head),
                      static_cast<std::size_t>(row_bytes));
        }
      }
    }
    cuda::check(cudaMemcpy(memory.data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice),
                "cudaMemcpy");
  }

  std::int64_t row_bytes;
  std::int64_t heads;
  DeviceBuffer memory;
};

// A view of one page of all rows, in which sequences begin at their offsets. offsets begin with 0: the page's id.
KvLayerView ragged_view(KvLayerView view, const RaggedSide& side, std::int64_t rows,
                        const std::uint32_t* offsets) {
  view.data = side.memory.data();
  view.num_pages = 1;
  view.page_size = static_cast<std::int32_t>(rows);
  view.token_stride_bytes = side.heads * side.row_bytes;
  view.head_stride_bytes = side.row_bytes;
  view.page_stride_bytes = rows * view.token_stride_bytes;
  view.page_table = offsets;
  view.page_table_stride = 0;
  view.max_pages = 1;
  view.first_rows = offsets;
  return view;
}

std::vector<std::byte> bytes_of(const TensorView& tensor) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(bytes_for(tensor.dtype, tensor.numel())));
  std::memcpy(bytes.data(), tensor.data, bytes.size());
  return bytes;
}

enum class Family { decode, tiles };

struct RaggedCase {
  Family family;
  std::vector<std::uint32_t> cached;
  std::vector<std::uint32_t> added;
};

class RaggedKeys : public testing::TestWithParam<RaggedCase> {
 protected:
  static FlashInputs inputs() {
    CacheOptions options{.cache_lengths = GetParam().cached, .new_tokens = GetParam().added};
    options.row_format = RowFormat::uniform(DType::bf16, 128);
    options.page_size = 64;
    options.num_kv_heads = 2;
    return {options, 8, DType::bf16};
  }

  static std::string kernel() {
    return GetParam().family == Family::decode ? "cuda/sm90/decode/flash_attention"
                                               : "cuda/sm90/flash_attention";
  }

  static std::vector<std::uint32_t> key_offsets() {
    std::vector<std::uint32_t> offsets{0};
    for (std::size_t i = 0; i < GetParam().cached.size(); ++i) {
      offsets.push_back(offsets.back() + GetParam().cached[i] + GetParam().added[i]);
    }
    return offsets;
  }

  static std::vector<std::byte> over_pages() {
    const FlashInputs host = inputs();
    const FlashAttentionArgs args = host.args();
    DeviceTwin twin;
    const FlashAttentionArgs there = twin.move(args);
    Context context{.kernel = kernel()};
    const DeviceBuffer workspace(supports(there, context).workspace_bytes);
    context.workspace = workspace.data();
    context.workspace_bytes = workspace.bytes();
    flash_attention(there, context);
    cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    twin.bring_back();
    return bytes_of(args.out);
  }

  static std::vector<std::byte> over_ragged_rows() {
    const FlashInputs host = inputs();
    const FlashAttentionArgs args = host.args();
    const std::vector<std::uint32_t> offsets = key_offsets();
    const std::int64_t rows = (std::int64_t{offsets.back()} + 127) / 128 * 128;
    const RaggedSide keys(args.cache.key(args.layer), offsets, rows);
    const RaggedSide values(args.cache.value(args.layer), offsets, rows);
    const DeviceBuffer device_offsets(static_cast<std::int64_t>(offsets.size() * 4));
    cuda::check(cudaMemcpy(device_offsets.data(), offsets.data(), offsets.size() * 4,
                           cudaMemcpyHostToDevice),
                "cudaMemcpy");
    DeviceTwin twin;
    const FlashAttentionArgs there = twin.move(args);
    FlashAttentionProblem problem = validate(there);
    const std::int64_t paged = problem.cache.max_pages * problem.cache.page_size;
    problem.cache.page_size = rows;
    problem.cache.max_pages = problem.cache.num_pages = 1;
    if (problem.ragged.max_keys < 0) problem.ragged.max_keys = paged;
    const auto* first_rows = reinterpret_cast<const std::uint32_t*>(device_offsets.data());
    const KvLayerView key_view = ragged_view(there.cache.key(there.layer), keys, rows, first_rows);
    const KvLayerView value_view =
        ragged_view(there.cache.value(there.layer), values, rows, first_rows);
    FlashAttentionArgs without_cache = there;
    without_cache.cache = {};
    const DeviceBuffer workspace(256 << 20);
    const Context context{.workspace = workspace.data(), .workspace_bytes = workspace.bytes()};
    const auto attend =
        GetParam().family == Family::decode ? tiles::attend_decode_over : tiles::attend_tiles_over;
    attend(problem, without_cache, key_view, value_view, context);
    cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    twin.bring_back();
    return bytes_of(args.out);
  }
};

TEST_P(RaggedKeys, GiveTheBitsOfTheSameRowsInPages) {
  const std::string reason = cuda::refuse_unless_sm90({.kind = DeviceKind::cuda, .index = 0});
  if (!reason.empty()) GTEST_SKIP() << reason;
  const std::vector<std::byte> wanted = over_pages();
  EXPECT_EQ(over_ragged_rows(), wanted);
}

INSTANTIATE_TEST_SUITE_P(Families, RaggedKeys,
                         testing::Values(RaggedCase{Family::decode, {100, 37, 300}, {1, 1, 1}},
                                         RaggedCase{Family::decode, {5, 0, 129}, {2, 3, 1}},
                                         RaggedCase{Family::tiles, {100, 0, 31}, {70, 200, 5}},
                                         RaggedCase{Family::tiles, {0, 0}, {129, 64}}),
                         [](const testing::TestParamInfo<RaggedCase>& info) {
                           return (info.param.family == Family::decode ? "decode" : "tiles") +
                                  std::to_string(info.index);
                         });

}  // namespace
}  // namespace quire::test
