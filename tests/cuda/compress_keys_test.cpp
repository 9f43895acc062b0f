// SPDX-License-Identifier: Apache-2.0
// A prompt that is cut anywhere gives the same rows and the same state as one that comes whole, byte by byte. Skipped where
// there is no GPU.
#include "quire/ops/compress_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "cuda/common/runtime/device_facts.h"
#include "device_twin.h"
#include "support/host_tensor.h"

namespace quire::cuda {
namespace {

using test::HostTensor;

constexpr std::int64_t kTokens = 300;
constexpr std::int64_t kPages = 20;
constexpr std::int64_t kPageSize = 16;

struct Subject {
  std::string name;
  RowFormat format;
  std::int64_t series;
  std::int64_t ratio;
  DType state;
};

struct Result {
  std::vector<std::byte> rows;
  std::vector<std::byte> scales;
  std::vector<std::byte> state;
};

class CutPrompt {
 public:
  explicit CutPrompt(const Subject& subject) : subject_(subject) {}

  // One sequence, in as many calls as there are `parts`.
  Result run(const std::vector<std::int64_t>& parts) {
    const RowFormat& format = subject_.format;
    const std::int64_t width = format.width();
    const std::int64_t columns = subject_.series * width;
    HostTensor rows =
        HostTensor::filled(DType::u8, {kPages, 1, 1, kPageSize, 1, format.row_bytes}, 0);
    HostTensor scales = HostTensor::filled(
        DType::e8m0, {kPages, 1, 1, kPageSize, 1, std::max(format.plane_slots(), 1)}, 1);
    HostTensor state = HostTensor::filled(subject_.state,
                                          {1, subject_.series * subject_.ratio + 3, 2, columns}, 0);
    CompressKeysArgs args;
    args.kv = twin_.move(keep(HostTensor::random(DType::bf16, {kTokens, columns}, 1)));
    args.gate = twin_.move(keep(HostTensor::random(DType::bf16, {kTokens, columns}, 2)));
    args.bias = twin_.move(keep(HostTensor::random(DType::f32, {subject_.ratio, columns}, 3)));
    args.gamma = twin_.move(keep(HostTensor::random(DType::bf16, {width}, 4)));
    args.freqs_cis = twin_.move(keep(HostTensor::random(DType::f32, {kTokens, 64}, 5)));
    args.state = twin_.move(state.view());
    args.cache.blocks = twin_.move(rows.view());
    args.cache.row_format = format;
    if (format.plane_slots() > 0) args.cache.scales = twin_.move(scales.view());
    std::vector<double> pages;
    for (std::int64_t page = 0; page < kPages; ++page) pages.push_back(static_cast<double>(page));
    args.cache.page_table = twin_.move(keep(HostTensor::of(DType::u32, {1, kPages}, pages)));
    const TensorView kv = args.kv;
    const TensorView gate = args.gate;
    std::int64_t cached = 0;
    for (const std::int64_t count : parts) {
      args.kv = tokens_of(kv, cached, count);
      args.gate = tokens_of(gate, cached, count);
      args.row_offsets =
          twin_.move(keep(HostTensor::of(DType::u32, {2}, {0.0, static_cast<double>(count)})));
      args.cache.cache_lengths =
          twin_.move(keep(HostTensor::of(DType::u32, {1}, {static_cast<double>(cached)})));
      compress_keys(args);
      cached += count;
    }
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    twin_.bring_back();
    return {.rows = rows.bytes(), .scales = scales.bytes(), .state = state.bytes()};
  }

 private:
  static TensorView tokens_of(const TensorView& all, std::int64_t first, std::int64_t count) {
    TensorView part = all;
    part.data = all.as<std::byte>() + bytes_for(all.dtype, first * all.strides[0]);
    part.shape[0] = count;
    return part;
  }
  TensorView keep(HostTensor tensor) {
    tensors_.push_back(std::move(tensor));
    return tensors_.back().view();
  }

  Subject subject_;
  test::DeviceTwin twin_;
  std::deque<HostTensor> tensors_;
};

class CompressKeysCut : public testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    const std::string reason = refuse_unless_sm80({.kind = DeviceKind::cuda, .index = 0});
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
};

TEST_P(CompressKeysCut, GivesTheRowsOfTheWholePrompt) {
  const Result whole = CutPrompt(GetParam()).run({kTokens});
  for (const std::vector<std::int64_t>& parts :
       {std::vector<std::int64_t>{1, 2, 130, 3, 164}, std::vector<std::int64_t>(kTokens, 1)}) {
    const Result cut = CutPrompt(GetParam()).run(parts);
    EXPECT_EQ(cut.rows, whole.rows);
    EXPECT_EQ(cut.scales, whole.scales);
    EXPECT_EQ(cut.state, whole.state);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Rows, CompressKeysCut,
    testing::Values(Subject{"v4_of_4", RowFormat::mla_fp8_e8m0(), 2, 4, DType::f32},
                    Subject{"v4_of_128", RowFormat::mla_fp8_e8m0(), 1, 128, DType::bf16},
                    Subject{"bf16_odd_width", RowFormat::uniform(DType::bf16, 75), 2, 5,
                            DType::f32}),
    [](const auto& subject) { return subject.param.name; });

}  // namespace
}  // namespace quire::cuda
