// SPDX-License-Identifier: Apache-2.0
// The kernels of flash_attention over K and V of a ragged batch without pages: the same rows in pages give the same bits.
// Skipped where there is no GPU.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "cuda/common/runtime/device_facts.h"
#include "device_twin.h"
#include "support/attention_inputs.h"

namespace quire::test {
namespace {

using cuda::DeviceBuffer;

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

  static void run(const FlashAttentionArgs& args) {
    Context context{.kernel = kernel()};
    const DeviceBuffer workspace(supports(args, context).workspace_bytes);
    context.workspace = workspace.data();
    context.workspace_bytes = workspace.bytes();
    flash_attention(args, context);
    cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

  static std::vector<std::byte> over_pages() {
    const FlashInputs host = inputs();
    const FlashAttentionArgs args = host.args();
    DeviceTwin twin;
    run(twin.move(args));
    twin.bring_back();
    return bytes_of(args.out);
  }

  static std::vector<std::byte> over_ragged_rows() {
    const FlashInputs host = inputs();
    const FlashAttentionArgs args = host.args();
    const std::vector<std::uint32_t> offsets = key_offsets();
    // Rows behind the last key are NaN, and not the tensor's.
    const std::int64_t rows = std::int64_t{offsets.back()} + 128;
    const RaggedSide keys(args.cache.key(args.layer), offsets, rows);
    const RaggedSide values(args.cache.value(args.layer), offsets, rows);
    const DeviceBuffer device_offsets(static_cast<std::int64_t>(offsets.size() * 4));
    cuda::check(cudaMemcpy(device_offsets.data(), offsets.data(), offsets.size() * 4,
                           cudaMemcpyHostToDevice),
                "cudaMemcpy");
    DeviceTwin twin;
    FlashAttentionArgs there = twin.move(args);
    const auto on_device = [&](std::byte* data, DType dtype,
                               std::initializer_list<std::int64_t> shape) {
      return TensorView::contiguous(data, dtype, shape, there.q.device);
    };
    there.cache = {};
    there.layer = 0;
    there.k = on_device(keys.memory.data(), DType::bf16, {offsets.back(), keys.heads, 128});
    there.v = on_device(values.memory.data(), DType::bf16, {offsets.back(), values.heads, 128});
    there.key_offsets =
        on_device(device_offsets.data(), DType::u32, {static_cast<std::int64_t>(offsets.size())});
    run(there);
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
