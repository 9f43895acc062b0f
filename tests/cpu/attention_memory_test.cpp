// SPDX-License-Identifier: Apache-2.0
// Scratch: of a prefill it grows neither with the tokens nor with the context, of the indexer with
// top_k alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "cpu/attention/batch.h"
#include "cpu/row_target.h"
#include "cpu/runtime/scratch.h"
#include "quire/ops/mla_indexer.h"
#include "quire/paged_kv_operand.h"
#include "support/cache_builder.h"
#include "support/host_tensor.h"
#include "support/indexer_inputs.h"

namespace quire::cpu {
namespace {

using test::CacheOptions;
using test::HostTensor;
using test::TestCache;

class AttentionMemory : public RowTarget {
 protected:
  // One sequence; q and out have shapes only.
  std::int64_t flash_bytes(std::uint32_t cached, std::uint32_t fresh, int num_threads) const {
    const TestCache cache({.cache_lengths = {cached},
                           .new_tokens = {fresh},
                           .row_format = RowFormat::uniform(DType::bf16, 128),
                           .page_size = 64,
                           .num_layers = 1});
    const Mask mask;
    const TensorView rows = TensorView::contiguous(nullptr, DType::bf16, {fresh, 8, 128});
    const PagedKvOperand keys(cache.view().key(0));
    const PagedKvOperand values(cache.view().value(0));
    const AttentionBatch batch{.q = rows,
                               .row_offsets = cache.row_offsets(),
                               .keys = keys,
                               .values = values,
                               .mask = mask,
                               .score = {.scale = 1.0f, .softcap = 0.0f},
                               .out = rows};
    return BatchAttention(batch, num_threads, GetParam()).scratch_bytes();
  }

  std::int64_t latent_bytes(std::uint32_t cached, std::uint32_t fresh, int num_threads) const {
    const TestCache cache({.cache_lengths = {cached},
                           .new_tokens = {fresh},
                           .row_format = RowFormat::uniform(DType::bf16, 576),
                           .page_size = 64,
                           .num_layers = 1,
                           .num_kv_heads = 1,
                           .is_mla = true});
    const Mask mask;
    const UpProjection up{.weight = nullptr,
                          .weight_dtype = DType::bf16,
                          .column_stride = 512,
                          .depth_stride = 1,
                          .scale = nullptr,
                          .scale_row_stride = 0,
                          .scale_depth_stride = 0,
                          .first_row = 0,
                          .latent = 512,
                          .nope = 128,
                          .rope = 64,
                          .value = 128,
                          .rounded = DType::bf16};
    const PagedKvOperand keys(cache.view().key(0));
    const AttentionBatch batch{.q = TensorView::contiguous(nullptr, DType::bf16, {fresh, 2, 192}),
                               .row_offsets = cache.row_offsets(),
                               .keys = keys,
                               .mask = mask,
                               .score = {.scale = 1.0f, .softcap = 0.0f},
                               .out = TensorView::contiguous(nullptr, DType::bf16, {fresh, 2, 128}),
                               .up = up,
                               .projection_rows = 256};
    return BatchAttention(batch, num_threads, GetParam()).scratch_bytes();
  }
};

INSTANTIATE_TEST_SUITE_P(, AttentionMemory, kEveryTarget, target_name);

TEST_P(AttentionMemory, OfAPrefillIsBounded) {
  constexpr std::int64_t kWorkerBytes = 8 << 20;
  for (const int num_threads : {1, 3}) {
    const std::int64_t flash = flash_bytes(0, 4096, num_threads);
    EXPECT_LE(flash, num_threads * kWorkerBytes);
    EXPECT_EQ(flash_bytes(0, 8192, num_threads), flash);
    EXPECT_EQ(flash_bytes(30000, 8192, num_threads), flash);
    const std::int64_t latent = latent_bytes(0, 4096, num_threads);
    EXPECT_LE(latent, num_threads * kWorkerBytes);
    EXPECT_EQ(latent_bytes(0, 8192, num_threads), latent);
    EXPECT_EQ(latent_bytes(30000, 8192, num_threads), latent);
  }
}

// On a thread of its own, which has no scratch before.
std::int64_t indexer_bytes(std::uint32_t cached, std::int64_t top_k, const Context& context) {
  test::IndexerInputs inputs(test::index_options({cached}, {1}, 16), 1, top_k);
  std::int64_t bytes = 0;
  std::thread([&] {
    mla_indexer(inputs.args(), context);
    bytes = thread_scratch_bytes();
  }).join();
  return bytes;
}

TEST_P(AttentionMemory, OfTheIndexerIsBoundedByTopK) {
  const std::int64_t few = indexer_bytes(3000, 1500, context(2));
  EXPECT_GT(few, 0);
  EXPECT_EQ(indexer_bytes(40000, 1500, context(2)), few);
  EXPECT_GT(indexer_bytes(40000, 30000, context(2)), few);
}

}  // namespace
}  // namespace quire::cpu
