// SPDX-License-Identifier: Apache-2.0
// flash_attention, mla_indexer and sparse_mla.
#include <cstring>
#include <limits>

#include "ops/bad_input.h"
#include "ops/sample_attention.h"
#include "ops/sample_latent.h"

namespace quire::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

INSTANTIATE_TEST_SUITE_P(
    Flash, BadInputTest,
    testing::Values(
        bad<FlashAttentionSample>("heads_do_not_divide", "q", "a multiple of 2 heads",
                                  [](auto& s) {
                                    s.args.q.shape[1] = 3;
                                    s.args.alibi_slopes.reset();
                                  }),
        bad<FlashAttentionSample>("head_dim", "q", "8 wide like the cache",
                                  [](auto& s) { s.args.q.shape[2] = 6; }),
        bad<FlashAttentionSample>("without_heads", "q", "at least 1 in every size",
                                  [](auto& s) { s.args.q.shape[1] = 0; }),
        bad<FlashAttentionSample>("q_strided", "q", "stride 1",
                                  [](auto& s) { s.args.q.strides[2] = 2; }),
        bad<FlashAttentionSample>("values_wider_than_rows", "out", "at most 8 wide",
                                  [](auto& s) {
                                    s.args.out = s.arena.poisoned(DType::bf16, {5, 4, 9});
                                  }),
        bad<FlashAttentionSample>("out_of_other_heads", "out", "must be bf16[5, 4, value_dim]",
                                  [](auto& s) { s.args.out.shape[1] = 2; }),
        bad<FlashAttentionSample>("out_over_q", "out", "apart from 'q'",
                                  [](auto& s) { s.args.out.data = s.args.q.data; }),
        bad<FlashAttentionSample>("out_over_half_of_q", "out", "apart from 'q'",
                                  [](auto& s) {
                                    s.args.out.data = s.args.q.template as<std::byte>() + 64;
                                  }),
        bad<FlashAttentionSample>("lse_over_out", "out", "apart from 'lse'",
                                  [](auto& s) { s.args.lse->data = s.args.out.data; }),
        bad<FlashAttentionSample>("out_whose_heads_overlap", "out", "do not share memory",
                                  [](auto& s) { s.args.out.strides[1] = 1; }),
        bad<FlashAttentionSample>("lse_broadcast", "lse", "without strides of 0",
                                  [](auto& s) { s.args.lse->strides[1] = 0; }),
        bad<FlashAttentionSample>("lse_shape", "lse", "must be f32[5, 4]",
                                  [](auto& s) { s.args.lse->shape[1] = 3; }),
        bad<FlashAttentionSample>("scale_nan", "scale", "must be finite, got nan",
                                  [](auto& s) { s.args.scale = kNan; }),
        bad<FlashAttentionSample>("softcap_negative", "softcap", "got -1",
                                  [](auto& s) { s.args.softcap = -1.0; }),
        bad<FlashAttentionSample>("softcap_nan", "softcap", "got nan",
                                  [](auto& s) { s.args.softcap = kNan; }),
        bad<FlashAttentionSample>("window_of_zero", "mask", "sliding_window(0)",
                                  [](auto& s) {
                                    s.args.mask = Mask::causal() & Mask::sliding_window(0);
                                  }),
        bad<FlashAttentionSample>("chunks_of_zero", "mask", "chunked(-4)",
                                  [](auto& s) {
                                    s.args.mask = Mask::chunked(-4) | Mask::causal();
                                  }),
        bad<FlashAttentionSample>("tree_of_other_tokens", "mask.bits",
                                  "must be u8[5, max_new_tokens]",
                                  [](auto& s) {
                                    s.args.mask = Mask::tree(s.arena.filled(DType::u8, {4, 3}, 1));
                                  }),
        bad<FlashAttentionSample>("tree_too_narrow", "mask.bits", "u8[5, 3] or wider",
                                  [](auto& s) {
                                    s.args.mask = Mask::tree(s.arena.filled(DType::u8, {5, 2}, 1));
                                  }),
        bad<FlashAttentionSample>("shared_pages_negative", "shared_prefix_pages", "got -1",
                                  [](auto& s) { s.args.shared_prefix_pages = -1; }),
        bad<FlashAttentionSample>("shared_pages_past_the_table", "shared_prefix_pages", "at most",
                                  [](auto& s) {
                                    s.args.shared_prefix_pages = s.args.cache.max_pages() + 1;
                                  }),
        bad<FlashAttentionSample>("shared_pages_past_the_longest", "shared_prefix_pages",
                                  "within the 11 keys of cache.max_cache_length, got 3 pages of 4",
                                  [](auto& s) {
                                    s.args.cache.max_cache_length = 11;
                                    s.args.shared_prefix_pages = 3;
                                  }),
        bad<FlashAttentionSample>("shared_pages_not_cached", "shared_prefix_pages",
                                  "within the 0 cached tokens of sequence 1, got 1 pages of 4",
                                  [](auto& s) {
                                    s.args.cache.cache_lengths.store({0}, 4);
                                    s.args.cache.cache_lengths.store({1}, 0);
                                    s.args.shared_prefix_pages = 1;
                                  }),
        bad<FlashAttentionSample>("pages_not_shared", "shared_prefix_pages",
                                  "of pages that all sequences share",
                                  [](auto& s) {
                                    s.args.cache.cache_lengths.store({0}, 4);
                                    s.args.cache.cache_lengths.store({1}, 4);
                                    s.args.shared_prefix_pages = 1;
                                  }),
        bad<FlashAttentionSample>("alibi_of_other_heads", "alibi_slopes", "must be f32[4]",
                                  [](auto& s) { s.args.alibi_slopes->shape[0] = 2; }),
        bad<FlashAttentionSample>("sinks_of_other_heads", "sinks", "must be f32[4]",
                                  [](auto& s) { s.args.sinks->shape[0] = 5; })),
    bad_input_name);

INSTANTIATE_TEST_SUITE_P(
    FlashKeys, BadInputTest,
    testing::Values(
        bad<FlashAttentionKeysSample>("key_lengths_of_another_batch", "key_lengths",
                                      "must be u32[2]",
                                      [](auto& s) { s.args.key_lengths->shape[0] = 1; }),
        bad_type<FlashAttentionKeysSample>("key_lengths_of_floats", "key_lengths",
                                           "must be u32, got f32[2]",
                                           [](auto& s) { s.args.key_lengths->dtype = DType::f32; }),
        bad<FlashAttentionKeysSample>("key_lengths_past_the_table", "key_lengths",
                                      "within 3 pages of 4 tokens, got 13 in sequence 1",
                                      [](auto& s) { s.args.key_lengths->store({1}, 13); }),
        bad<FlashAttentionKeysSample>("key_lengths_past_the_bound", "cache.max_cache_length",
                                      "at least 3, the longest in the batch",
                                      [](auto& s) { s.args.cache.max_cache_length = 2; }),
        bad<FlashAttentionKeysSample>(
            "key_lengths_of_queries_too_far", "cache.cache_lengths", "positions below 2^30 - 1",
            [](auto& s) { s.args.cache.cache_lengths.store({1}, 0x40000000); }),
        bad<FlashAttentionKeysSample>("key_lengths_on_a_bad_page", "cache.page_table",
                                      "got 77 in sequence 1, column 2",
                                      [](auto& s) { s.args.key_lengths->store({1}, 12); }),
        // Inside of out's memory: the other way round out would reach over their neighbours too.
        bad<FlashAttentionKeysSample>("out_over_key_lengths", "out", "apart from 'key_lengths'",
                                      [](auto& s) {
                                        auto& lengths = *s.args.key_lengths;
                                        std::memcpy(s.args.out.data, lengths.data,
                                                    lengths.numel() * sizeof(std::uint32_t));
                                        lengths.data = s.args.out.data;
                                      })),
    bad_input_name);

INSTANTIATE_TEST_SUITE_P(
    FlashBlocks, BadInputTest,
    testing::Values(
        bad<FlashAttentionBlocksSample>("lists_of_other_tokens", "key_blocks",
                                        "must be i32[5, 2, max_blocks], got i32[4, 2, 2]",
                                        [](auto& s) { s.args.key_blocks->shape[0] = 4; }),
        bad<FlashAttentionBlocksSample>(
            "lists_of_query_heads", "key_blocks", "must be i32[5, 2, max_blocks], got i32[5, 4, 2]",
            [](auto& s) {
              s.args.key_blocks = s.arena.filled(DType::i32, {5, 4, 2}, -1);
            }),
        bad<FlashAttentionBlocksSample>("lists_without_slots", "key_blocks",
                                        "at least 1 in every size",
                                        [](auto& s) { s.args.key_blocks->shape[2] = 0; }),
        bad<FlashAttentionBlocksSample>("slots_apart", "key_blocks", "stride 1",
                                        [](auto& s) { s.args.key_blocks->strides[2] = 2; }),
        bad_type<FlashAttentionBlocksSample>(
            "unsigned_lists", "key_blocks", "must be i32, got u32[5, 2, 2]",
            [](auto& s) { s.args.key_blocks->dtype = DType::u32; }),
        bad<FlashAttentionBlocksSample>("blocks_of_no_keys", "key_block_size", "got 0",
                                        [](auto& s) { s.args.key_block_size = 0; }),
        bad<FlashAttentionBlocksSample>(
            "a_block_twice", "key_blocks",
            "of lists that name a block once, got block 1 twice in the list of token 1, KV head 0",
            [](auto& s) {
              s.args.key_blocks->store({1, 0, 0}, 1);
            }),
        bad<FlashAttentionBlocksSample>("out_over_lists", "out", "apart from 'key_blocks'",
                                        [](auto& s) {
                                          auto& lists = *s.args.key_blocks;
                                          std::memcpy(s.args.out.data, lists.data,
                                                      lists.numel() * sizeof(std::int32_t));
                                          lists.data = s.args.out.data;
                                        })),
    bad_input_name);

INSTANTIATE_TEST_SUITE_P(
    FlashIntervals, BadInputTest,
    testing::Values(
        bad<FlashAttentionIntervalsSample>("begin_of_other_tokens", "mask.begin",
                                           "must be i32[5], got i32[4]",
                                           [](auto& s) { s.begin.shape[0] = 4; }),
        bad<FlashAttentionIntervalsSample>("end_of_other_tokens", "mask.end",
                                           "must be i32[5], got i32[6]",
                                           [](auto& s) { s.end.shape[0] = 6; }),
        bad_type<FlashAttentionIntervalsSample>("unsigned_bounds", "mask.begin",
                                                "must be i32, got u32[5]",
                                                [](auto& s) { s.begin.dtype = DType::u32; }),
        bad_type<FlashAttentionIntervalsSample>("long_bounds", "mask.end",
                                                "must be i32, got i64[5]",
                                                [](auto& s) { s.end.dtype = DType::i64; }),
        bad<FlashAttentionIntervalsSample>("one_matrix_of_bounds", "mask.begin",
                                           "must be i32[5], got i32[5, 2]",
                                           [](auto& s) {
                                             s.begin = s.arena.filled(DType::i32, {5, 2}, 0);
                                           }),
        // out is larger than the bounds: what stands behind them may be named first.
        bad<FlashAttentionIntervalsSample>("out_over_bounds", "out", "apart from '",
                                           [](auto& s) { s.args.out.data = s.begin.data; })),
    bad_input_name);

INSTANTIATE_TEST_SUITE_P(
    FlashRagged, BadInputTest,
    testing::Values(
        bad<FlashAttentionRaggedSample>("without_k", "k",
                                        "given together with k, v and key_offsets",
                                        [](auto& s) { s.args.k.reset(); }),
        bad<FlashAttentionRaggedSample>("without_v", "v", "given together with",
                                        [](auto& s) { s.args.v.reset(); }),
        bad<FlashAttentionRaggedSample>("without_key_offsets", "key_offsets", "given together with",
                                        [](auto& s) { s.args.key_offsets.reset(); }),
        bad<FlashAttentionRaggedSample>("cache_beside_keys", "cache",
                                        "absent where k and v are given",
                                        [](auto& s) { s.args.cache = make_cache(s.arena, {}); }),
        bad<FlashAttentionRaggedSample>("layer_without_cache", "layer", "must be 0 without a cache",
                                        [](auto& s) { s.args.layer = 1; }),
        bad<FlashAttentionRaggedSample>("pages_without_cache", "shared_prefix_pages",
                                        "must be 0 without a cache",
                                        [](auto& s) { s.args.shared_prefix_pages = 1; }),
        bad<FlashAttentionRaggedSample>("lengths_and_offsets", "key_lengths",
                                        "absent where key_offsets are given",
                                        [](auto& s) {
                                          s.args.key_lengths = s.arena.of(DType::u32, {2}, {1, 1});
                                        }),
        bad<FlashAttentionRaggedSample>("k_of_other_heads", "q", "a multiple of 3 heads",
                                        [](auto& s) {
                                          s.args.k = s.arena.random(DType::bf16, {7, 3, 8});
                                          s.args.v = s.arena.random(DType::bf16, {7, 3, 6});
                                        }),
        bad<FlashAttentionRaggedSample>("k_of_another_width", "q", "10 wide like k",
                                        [](auto& s) {
                                          s.args.k = s.arena.random(DType::bf16, {7, 2, 10});
                                        }),
        bad<FlashAttentionRaggedSample>("v_of_other_keys", "v", "must be bf16[7, 2, value_dim]",
                                        [](auto& s) { s.args.v->shape[0] = 6; }),
        bad_type<FlashAttentionRaggedSample>("v_of_another_dtype", "v", "must be bf16",
                                             [](auto& s) { s.args.v->dtype = DType::f16; }),
        bad_type<FlashAttentionRaggedSample>("keys_of_integers", "k", "must be",
                                             [](auto& s) { s.args.k->dtype = DType::i8; }),
        bad<FlashAttentionRaggedSample>("k_strided", "k", "stride 1",
                                        [](auto& s) { s.args.k->strides[2] = 2; }),
        bad<FlashAttentionRaggedSample>("out_wider_than_v", "out", "at most 6 wide like v",
                                        [](auto& s) {
                                          s.args.out = s.arena.poisoned(DType::bf16, {5, 4, 7});
                                        }),
        bad<FlashAttentionRaggedSample>("key_offsets_of_another_batch", "key_offsets",
                                        "must be u32[3]",
                                        [](auto& s) { s.args.key_offsets->shape[0] = 2; }),
        bad<FlashAttentionRaggedSample>("key_offsets_not_from_0", "key_offsets", "0 at [0]",
                                        [](auto& s) { s.args.key_offsets->store({0}, 1); }),
        bad<FlashAttentionRaggedSample>("key_offsets_step_back", "key_offsets",
                                        "monotone, at least 9 at [2]",
                                        [](auto& s) { s.args.key_offsets->store({1}, 9); }),
        bad<FlashAttentionRaggedSample>("key_offsets_end_early", "key_offsets",
                                        "7, the number of keys, at [2], got 6",
                                        [](auto& s) { s.args.key_offsets->store({2}, 6); }),
        bad<FlashAttentionRaggedSample>("row_offsets_end_early", "row_offsets",
                                        "5, the number of tokens, at [2], got 4",
                                        [](auto& s) { s.args.row_offsets.store({2}, 4); })),
    bad_input_name);

INSTANTIATE_TEST_SUITE_P(
    Indexer, BadInputTest,
    testing::Values(
        bad<MlaIndexerSample>("top_k_zero", "top_k", "at least 1, got 0",
                              [](auto& s) { s.args.top_k = 0; }),
        bad<MlaIndexerSample>("top_k_negative", "top_k", "got -5",
                              [](auto& s) { s.args.top_k = -5; }),
        bad<MlaIndexerSample>("out_narrower_than_top_k", "out", "must be i32[5, 3]",
                              [](auto& s) { s.args.top_k = 3; }),
        bad<MlaIndexerSample>("window_mask", "mask", "must be causal or full",
                              [](auto& s) { s.args.mask = Mask::sliding_window(4); }),
        bad<MlaIndexerSample>("q_scale_nan", "q_scale", "nan at [2, 1]",
                              [](auto& s) {
                                s.args.q_scale.store({2, 1}, kNan);
                              }),
        bad<MlaIndexerSample>("q_scale_of_other_heads", "q_scale", "must be f32[5, 2]",
                              [](auto& s) { s.args.q_scale.shape[1] = 1; }),
        bad<MlaIndexerSample>("head_dim", "q", "8 wide like the cache",
                              [](auto& s) { s.args.q.shape[2] = 4; }),
        bad<MlaIndexerSample>(
            "two_scales_per_token", "cache", "one f32 scale per token",
            [](auto& s) {
              s.args.cache = make_cache(
                  s.arena, {.dtype = DType::fp8_e4m3, .kv = 1, .heads = 1, .row = 8, .slots = 2});
            }),
        bad<MlaIndexerSample>("keys_of_bf16", "cache", "rows of fp8_e4m3",
                              [](auto& s) {
                                s.args.cache = make_cache(
                                    s.arena, {.dtype = DType::bf16, .kv = 1, .heads = 1});
                              })),
    bad_input_name);

INSTANTIATE_TEST_SUITE_P(
    Sparse, BadInputTest,
    testing::Values(
        bad<SparseMlaSample>("q_width", "q", "12 wide like the cache",
                             [](auto& s) { s.args.q.shape[2] = 10; }),
        bad<SparseMlaSample>("values_wider_than_rows", "out", "at most 12 wide",
                             [](auto& s) {
                               s.args.out = s.arena.poisoned(DType::bf16, {5, 3, 13});
                             }),
        bad<SparseMlaSample>("indices_of_other_tokens", "indices", "must be i32[5, top_k]",
                             [](auto& s) { s.args.indices.shape[0] = 4; }),
        bad<SparseMlaSample>("lengths_of_other_tokens", "topk_lengths", "must be i32[5]",
                             [](auto& s) { s.args.topk_lengths->shape[0] = 2; }),
        bad<SparseMlaSample>("scale_not_given", "scale", "positive and finite, got 0",
                             [](auto& s) { s.args.scale = 0.0; }),
        bad<SparseMlaSample>("scale_infinite", "scale", "got inf",
                             [](auto& s) { s.args.scale = kInfinity; }),
        bad<SparseMlaSample>("extra_layer", "extra.layer", "in [0, 2)",
                             [](auto& s) { s.args.extra->layer = 2; }),
        bad<SparseMlaSample>("extra_of_another_batch", "extra.cache.cache_lengths",
                             "must be u32[2]",
                             [](auto& s) {
                               s.args.extra->cache.cache_lengths.shape[0] = 1;
                               s.args.extra->cache.page_table.shape[0] = 1;
                             }),
        bad<SparseMlaSample>("extra_width", "extra.cache", "12 wide like the cache",
                             [](auto& s) {
                               s.args.extra->cache =
                                   make_cache(s.arena, {.kv = 1, .heads = 1, .row = 10});
                             })),
    bad_input_name);

}  // namespace
}  // namespace quire::test
