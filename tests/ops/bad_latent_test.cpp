// SPDX-License-Identifier: Apache-2.0
// mla_prefill_plan, mla_prefill and mla_decode.
#include <limits>

#include "ops/bad_input.h"
#include "ops/sample_latent.h"

namespace quire::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

INSTANTIATE_TEST_SUITE_P(
    PrefillPlan, BadInputTest,
    testing::Values(
        bad<MlaPrefillPlanSample>("buffer_of_nothing", "chunks.buffer_tokens", "at least 1, got 0",
                                  [](auto& s) { s.args.chunks.buffer_tokens = 0; }),
        bad<MlaPrefillPlanSample>("buffer_past_i32", "chunks.buffer_tokens", "at most 2^31 - 1",
                                  [](auto& s) {
                                    s.args.chunks.buffer_tokens = std::int64_t{1} << 31;
                                  }),
        bad<MlaPrefillPlanSample>("decodes_of_fewer_than_none", "chunks.decode_tokens",
                                  "at least 0, got -1",
                                  [](auto& s) { s.args.chunks.decode_tokens = -1; }),
        bad<MlaPrefillPlanSample>("decodes_of_nine_tokens", "chunks.decode_tokens",
                                  "at most 8, got 9",
                                  [](auto& s) { s.args.chunks.decode_tokens = 9; }),
        bad<MlaPrefillPlanSample>("too_few_chunks", "chunks", "6 chunks of 2 tokens or more, got 3",
                                  [](auto& s) { s.args.chunks.buffer_tokens = 2; }),
        bad<MlaPrefillPlanSample>("offsets_of_another_batch", "chunks.buffer_row_offsets",
                                  "must be u32[3, 3]",
                                  [](auto& s) { s.args.chunks.buffer_row_offsets.shape[1] = 2; }),
        bad<MlaPrefillPlanSample>("outputs_overlap", "chunks.buffer_row_offsets",
                                  "apart from 'chunks.cache_offsets'",
                                  [](auto& s) {
                                    s.args.chunks.cache_offsets.data =
                                        s.args.chunks.buffer_row_offsets.data;
                                  })),
    bad_input_name);

INSTANTIATE_TEST_SUITE_P(
    Prefill, BadInputTest,
    testing::Values(
        bad<MlaPrefillSample>("projection_rows", "kv_b_proj", "must be bf16[33, 8]",
                              [](auto& s) { s.args.kv_b_proj.shape[0] = 30; }),
        bad<MlaPrefillSample>("no_rope_left", "kv_b_proj", "pairs of rope columns in rows of 12",
                              [](auto& s) {
                                s.args.kv_b_proj = s.arena.random(DType::bf16, {33, 12});
                              }),
        bad<MlaPrefillSample>("odd_rope", "kv_b_proj", "pairs of rope columns",
                              [](auto& s) {
                                s.args.kv_b_proj = s.arena.random(DType::bf16, {33, 9});
                              }),
        bad<MlaPrefillSample>("q_narrower_than_rope", "q", "wider than the 4 rope columns",
                              [](auto& s) { s.args.q.shape[2] = 4; }),
        bad<MlaPrefillSample>("rope_rotated_twice_in_place", "q", "without strides of 0",
                              [](auto& s) { s.args.q.strides[1] = 0; }),
        bad<MlaPrefillSample>("freqs_too_short", "freqs_cis", "of 5 rows or more",
                              [](auto& s) { s.args.freqs_cis->shape[0] = 4; }),
        bad<MlaPrefillSample>("freqs_width", "freqs_cis", "must be f32[max_pos, 4]",
                              [](auto& s) { s.args.freqs_cis->shape[1] = 2; }),
        bad<MlaPrefillSample>("freqs_without_gamma", "kv_norm_gamma", "together with freqs_cis",
                              [](auto& s) { s.args.kv_norm_gamma.reset(); }),
        bad<MlaPrefillSample>("gamma_without_freqs", "freqs_cis", "together with kv_norm_gamma",
                              [](auto& s) { s.args.freqs_cis.reset(); }),
        bad<MlaPrefillSample>("gamma_length", "kv_norm_gamma", "must be bf16[8]",
                              [](auto& s) { s.args.kv_norm_gamma->shape[0] = 7; }),
        bad<MlaPrefillFp8Sample>("raw_rows_without_freqs", "freqs_cis", "given with kv",
                                 [](auto& s) {
                                   s.args.freqs_cis.reset();
                                   s.args.kv_norm_gamma.reset();
                                 }),
        bad<MlaPrefillFp8Sample>("raw_rows_shape", "kv", "must be bf16[5, 12]",
                                 [](auto& s) { s.args.kv->shape[1] = 8; }),
        bad<MlaPrefillFp8Sample>("fp8_without_scale", "kv_b_proj_scale", "given for an fp8 weight",
                                 [](auto& s) { s.args.kv_b_proj_scale.reset(); }),
        bad<MlaPrefillFp8Sample>("block_scale_shape", "kv_b_proj_scale", "must be f32[1, 1]",
                                 [](auto& s) {
                                   s.args.kv_b_proj_scale = s.arena.filled(DType::f32, {33, 1}, 1);
                                 }),
        bad<MlaPrefillFp8Sample>("block_scale_nan", "kv_b_proj_scale", "nan at [0, 0]",
                                 [](auto& s) {
                                   s.args.kv_b_proj_scale->store({0, 0}, kNan);
                                 }),
        bad<MlaPrefillSample>("scale_of_a_dense_weight", "kv_b_proj_scale", "must be absent",
                              [](auto& s) {
                                s.args.kv_b_proj_scale = s.arena.filled(DType::f32, {1, 1}, 1);
                              }),
        bad<MlaPrefillSample>("scale_not_given", "scale", "positive and finite, got 0",
                              [](auto& s) { s.args.scale = 0.0; }),
        bad<MlaPrefillSample>("epsilon_zero", "epsilon", "positive and finite, got 0",
                              [](auto& s) { s.args.epsilon = 0.0; })),
    bad_input_name);

INSTANTIATE_TEST_SUITE_P(
    MixedBatch, BadInputTest,
    testing::Values(
        bad<MlaPrefillSample>("softcap", "softcap", "0 with chunks.decode_tokens, got 2",
                              [](auto& s) {
                                s.args.chunks.decode_tokens = 1;
                                s.args.alibi_slopes.reset();
                                s.args.softcap = 2.0;
                              }),
        bad<MlaPrefillSample>("alibi", "alibi_slopes", "none with chunks.decode_tokens",
                              [](auto& s) {
                                s.args.chunks.decode_tokens = 1;
                                s.args.softcap = 0.0;
                                s.args.alibi_slopes =
                                    s.arena.random(DType::f32, {s.args.q.shape[1]});
                              }),
        bad<MlaPrefillSample>("tree", "mask",
                              "without trees and key intervals with chunks.decode_tokens",
                              [](auto& s) {
                                s.args.chunks.decode_tokens = 1;
                                s.args.softcap = 0.0;
                                s.args.alibi_slopes.reset();
                                s.args.mask =
                                    Mask::causal() &
                                    Mask::tree(s.arena.random(DType::u8, {s.args.q.shape[0], 8}));
                              }),
        bad<MlaPrefillSample>("key_intervals", "mask",
                              "without trees and key intervals with chunks.decode_tokens",
                              [](auto& s) {
                                s.args.chunks.decode_tokens = 1;
                                s.args.softcap = 0.0;
                                s.args.alibi_slopes.reset();
                                const TensorView bounds =
                                    s.arena.filled(DType::i32, {s.args.q.shape[0]}, 3);
                                s.args.mask = Mask::key_intervals(bounds, bounds);
                              })),
    bad_input_name);

// sequence 0: rows [0, 6) of chunk 0 and [0, 2) of chunk 1; sequence 1: rows [2, 6) of chunk 1.
INSTANTIATE_TEST_SUITE_P(
    PrefillChunks, BadInputTest,
    testing::Values(
        bad<MlaPrefillSample>("unused_where_keys_are", "chunks",
                              "all 3 keys of sequence 1, got one of 0",
                              [](auto& s) { s.args.chunks.buffer_lengths.store({1}, -1); }),
        bad<MlaPrefillSample>("longer_than_the_buffer", "chunks.buffer_lengths", "at most 6",
                              [](auto& s) { s.args.chunks.buffer_lengths.store({0}, 7); }),
        bad<MlaPrefillSample>("rows_step_back", "chunks.buffer_row_offsets",
                              "without a step back in chunk 1",
                              [](auto& s) {
                                s.args.chunks.buffer_row_offsets.store({1, 1}, 7);
                              }),
        bad<MlaPrefillSample>("rows_end_early", "chunks.buffer_row_offsets", "got 4 at [1, 2]",
                              [](auto& s) {
                                s.args.chunks.buffer_row_offsets.store({1, 2}, 4);
                              }),
        bad<MlaPrefillSample>("keys_repeat", "chunks.cache_offsets",
                              "6, the keys of sequence 0 in earlier chunks",
                              [](auto& s) {
                                s.args.chunks.cache_offsets.store({1, 0}, 4);
                              }),
        bad<MlaPrefillSample>("keys_skipped", "chunks.cache_offsets", "got 1 at [1, 1]",
                              [](auto& s) {
                                s.args.chunks.cache_offsets.store({1, 1}, 1);
                              }),
        bad<MlaPrefillSample>("of_a_shorter_batch", "chunks",
                              "all 9 keys of sequence 0, got one of 8",
                              [](auto& s) {
                                s.args.cache.cache_lengths.store({0}, 7);
                                s.args.cache.page_table.store({0, 2}, 0);
                                s.args.freqs_cis = s.arena.random(DType::f32, {16, 4});
                              })),
    bad_input_name);

INSTANTIATE_TEST_SUITE_P(
    Decode, BadInputTest,
    testing::Values(
        bad<MlaDecodeSample>("w_uk_without_w_uv", "w_uv", "together with w_uk",
                             [](auto& s) { s.args.w_uv.reset(); }),
        bad<MlaDecodeSample>("w_uv_without_w_uk", "w_uk", "together with w_uv",
                             [](auto& s) { s.args.w_uk.reset(); }),
        bad<MlaDecodeSample>("w_uk_nope", "w_uk", "must be fp8_e4m3[3, 8, 6]",
                             [](auto& s) { s.args.w_uk->shape[2] = 5; }),
        bad<MlaDecodeSample>("w_uv_values", "w_uv", "must be fp8_e4m3[3, 5, 8]",
                             [](auto& s) { s.args.w_uv->shape[1] = 4; }),
        bad_type<MlaDecodeSample>("weights_of_two_dtypes", "w_uv", "must be fp8_e4m3",
                                  [](auto& s) {
                                    s.args.w_uv = s.arena.random(DType::bf16, {3, 5, 8});
                                  }),
        bad<MlaDecodeSample>("scale_nan", "w_uv_scale", "nan at [2, 0, 0]",
                             [](auto& s) {
                               s.args.w_uv_scale->store({2, 0, 0}, kNan);
                             }),
        bad<MlaDecodeSample>("softmax_scale_nan", "scale", "got nan",
                             [](auto& s) { s.args.scale = kNan; }),
        bad<MlaDecodeSample>("epsilon_negative", "epsilon", "got -1",
                             [](auto& s) { s.args.epsilon = -1.0; }),
        bad<MlaDecodeAbsorbedSample>("absorbed_q_width", "q", "12 wide like the cache",
                                     [](auto& s) { s.args.q.shape[2] = 10; }),
        bad<MlaDecodeAbsorbedSample>("absorbed_latent", "out", "pairs of rope columns",
                                     [](auto& s) {
                                       s.args.out = s.arena.poisoned(DType::bf16, {5, 3, 12});
                                     }),
        bad<MlaDecodeSample>("nine_new_tokens", "row_offsets", "at most 8 new tokens",
                             [](auto& s) {
                               s.args.q = s.arena.random(DType::bf16, {9, 3, 10});
                               s.args.out = s.arena.poisoned(DType::bf16, {9, 3, 5});
                               s.args.lse = s.arena.poisoned(DType::f32, {9, 3});
                               s.args.row_offsets = s.arena.of(DType::u32, {3}, {0, 0, 9});
                               s.args.cache.page_table.store({1, 2}, 0);
                               s.args.freqs_cis = s.arena.random(DType::f32, {16, 4});
                             })),
    bad_input_name);

}  // namespace
}  // namespace quire::test
