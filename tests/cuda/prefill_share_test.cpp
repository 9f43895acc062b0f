// SPDX-License-Identifier: Apache-2.0
// Prefill over e4m3 rows that thread blocks dequantize for each other, on a stream that has only some of the SMs: blocks
// that wait for others which cannot run would wait for ever. Skipped where there is no GPU.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "cuda/common/runtime/device_facts.h"
#include "device_twin.h"
#include "green_stream.h"
#include "support/attention_inputs.h"

namespace quire::test {
namespace {

// Some 80 tiles, and 40 quarters of blocks of keys: more of both than the stream has SMs.
FlashInputs many_tiles() {
  CacheOptions options{.cache_lengths = {1000}, .new_tokens = {160}};
  options.row_format = RowFormat::uniform(DType::fp8_e4m3, 128);
  options.page_size = 64;
  options.num_kv_heads = 1;
  return {options, 64, DType::bf16};
}

// The bytes of out.
std::vector<std::byte> attend(cudaStream_t stream) {
  const FlashInputs inputs = many_tiles();
  const FlashAttentionArgs args = inputs.args();
  DeviceTwin twin;
  const FlashAttentionArgs there = twin.move(args);
  Context context{.stream = stream, .kernel = "cuda/sm90/flash_attention"};
  const Plan plan = supports(there, context);
  // No tile is cut among as many thread blocks as there are, so that bits may be compared.
  using Choices = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(Choices(plan.choices.begin() + 2, plan.choices.end()),
            (Choices{{"cache", "dequantized beside"}}));
  const cuda::DeviceBuffer workspace(plan.workspace_bytes);
  context.workspace = workspace.data();
  context.workspace_bytes = workspace.bytes();
  flash_attention(there, context);
  cuda::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  twin.bring_back();
  std::vector<std::byte> bytes(
      static_cast<std::size_t>(bytes_for(args.out.dtype, args.out.numel())));
  std::memcpy(bytes.data(), args.out.data, bytes.size());
  return bytes;
}

TEST(PrefillShare, IsTheSameOnAFewSms) {
  const std::string reason = cuda::refuse_unless_sm90({.kind = DeviceKind::cuda, .index = 0});
  if (!reason.empty()) GTEST_SKIP() << reason;
  const GreenStream few(16);
  ASSERT_LT(few.num_sms(), cuda::num_sms(0));
  EXPECT_EQ(attend(few.get()), attend(nullptr));
}

}  // namespace
}  // namespace quire::test
