// SPDX-License-Identifier: Apache-2.0
// rope, the norms, store, store_scales, copy_pages, remap_sparse_indices, merge_states,
// quantize_fp8 and row_offsets.
#include <limits>

#include "ops/bad_input.h"
#include "ops/sample_cache_ops.h"
#include "ops/sample_row_ops.h"

namespace quire::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

INSTANTIATE_TEST_SUITE_P(
    Rope, BadInputTest,
    testing::Values(
        bad<RopeSample>("odd_columns", "freqs_cis", "an even number of columns from 2 to 8",
                        [](auto& s) { s.args.freqs_cis.shape[1] = 5; }),
        bad<RopeSample>("wider_than_the_head", "freqs_cis", "from 2 to 8",
                        [](auto& s) {
                          s.args.freqs_cis = s.arena.random(DType::f32, {8, 10});
                        }),
        bad<RopeSample>("too_few_positions", "freqs_cis", "of 5 rows or more",
                        [](auto& s) { s.args.freqs_cis.shape[0] = 4; }),
        bad<RopePositionsSample>("position_past_freqs", "position_ids", "got 8 at [1, 2]",
                                 [](auto& s) {
                                   s.args.position_ids->store({1, 2}, 8);
                                 }),
        bad<RopePositionsSample>("sections_past_the_pairs", "mrope_sections", "share 3 pairs",
                                 [](auto& s) {
                                   s.args.mrope_sections = {2, 2};
                                 }),
        bad<RopePositionsSample>("section_negative", "mrope_sections", "[-1, 2]",
                                 [](auto& s) {
                                   s.args.mrope_sections = {-1, 2};
                                 }),
        bad<RopePositionsSample>("ids_of_another_count", "position_ids", "must be u32[3, 5]",
                                 [](auto& s) {
                                   s.args.mrope_sections = {1, 1, 1};
                                 }),
        bad<RopeSample>("sections_without_ids", "position_ids", "given with mrope_sections",
                        [](auto& s) {
                          s.args.mrope_sections = {1, 2};
                        }),
        bad<RopeSample>("scaled_keys", "cache", "unscaled in the columns [0, 6)",
                        [](auto& s) {
                          s.args.cache =
                              make_cache(s.arena, {.dtype = DType::fp8_e4m3, .slots = 1});
                        }),
        bad<RopeNormedSample>("gamma_longer_than_the_head", "key_gamma", "1 to 8 long",
                              [](auto& s) { s.args.key_gamma = s.arena.random(DType::f32, {9}); }),
        bad<RopeNormedSample>("q_gamma_empty", "q_gamma", "1 to 8 long",
                              [](auto& s) { s.args.q_gamma->shape[0] = 0; }),
        bad<RopeNormedSample>("key_gamma_without_keys", "key_gamma", "rotate_key is false",
                              [](auto& s) { s.args.rotate_key = false; }),
        bad<RopeNormedSample>("epsilon_zero", "epsilon", "got 0",
                              [](auto& s) { s.args.epsilon = 0.0; }),
        bad<RopeNormedSample>("offset_nan", "weight_offset", "got nan",
                              [](auto& s) { s.args.weight_offset = kNan; }),
        bad<RopeSample>("out_over_part_of_q", "out", "apart from 'q'",
                        [](auto& s) { s.args.out.data = s.args.q.template as<std::byte>() + 16; }),
        bad<RopeSample>("out_shape", "out", "must be bf16[5, 4, 8]",
                        [](auto& s) { s.args.out.shape[2] = 6; })),
    bad_input_name);

INSTANTIATE_TEST_SUITE_P(
    RmsNorm, BadInputTest,
    testing::Values(
        bad<RmsNormKeySample>("gamma_longer_than_the_head", "gamma", "1 to 8 long",
                              [](auto& s) { s.args.gamma = s.arena.random(DType::bf16, {9}); }),
        bad<RmsNormKeySample>("gamma_of_a_token", "gamma", "must be bf16[16]",
                              [](auto& s) { s.args.per_head = false; }),
        bad<RmsNormValueSample>("epsilon_zero", "epsilon", "got 0",
                                [](auto& s) { s.args.epsilon = 0.0; }),
        bad<RmsNormKeySample>("epsilon_nan", "epsilon", "got nan",
                              [](auto& s) { s.args.epsilon = kNan; }),
        bad<RmsNormKeySample>("offset_nan", "weight_offset", "got nan",
                              [](auto& s) { s.args.weight_offset = kNan; }),
        bad<RmsNormValueSample>("scaled_values", "cache", "unscaled in the columns [0, 6)",
                                [](auto& s) {
                                  s.args.cache =
                                      make_cache(s.arena, {.dtype = DType::i8, .slots = 2});
                                })),
    bad_input_name);

INSTANTIATE_TEST_SUITE_P(
    Store, BadInputTest,
    testing::Values(
        bad<StoreSample>("heads", "x", "must be f32[tokens, 2, 8]",
                         [](auto& s) { s.args.x.shape[1] = 1; }),
        bad_type<StoreSample>("codes_of_another_dtype", "x", "must be f32, f16, bf16 or fp8_e4m3",
                              [](auto& s) { s.args.x.dtype = DType::fp8_e5m2; }),
        bad<StoreSample>("x_in_the_cache", "cache.blocks", "apart from 'x'",
                         [](auto& s) { s.args.x.data = s.args.cache.blocks.data; }),
        bad<StoreSample>("neither_offsets_nor_slots", "row_offsets", "or slots instead, got none",
                         [](auto& s) { s.args.row_offsets = {}; }),
        bad<StoreSlotsSample>("slot_past_the_pool", "slots", "below 24 (6 pages of 4 tokens)",
                              [](auto& s) { s.args.slots->template as<std::int64_t>()[3] = 24; }),
        bad<StoreSlotsSample>("slot_far_away", "slots", "got 9223372036854775807 at [4]",
                              [](auto& s) {
                                s.args.slots->template as<std::int64_t>()[4] =
                                    std::numeric_limits<std::int64_t>::max();
                              }),
        bad<StoreSlotsSample>("slots_of_fewer_tokens", "slots", "must be i64[5]",
                              [](auto& s) { s.args.slots->shape[0] = 4; }),
        bad_type<StoreSlotsSample>("slots_unsigned", "slots", "must be i64 or i32",
                                   [](auto& s) { s.args.slots->dtype = DType::u32; }),
        bad<StoreSlotsSample>("slots_with_gaps", "slots", "dense in its last dimension",
                              [](auto& s) {
                                s.args.slots =
                                    s.arena.of(DType::i64, {10}, std::vector<double>(10));
                                s.args.slots->shape[0] = 5;
                                s.args.slots->strides[0] = 2;
                              }),
        bad<StoreSlotsSample>("own_scale_pages", "cache.scales_page_table", "absent with slots",
                              [](auto& s) {
                                s.args.cache =
                                    make_cache(s.arena, {.dtype = DType::fp8_e4m3, .slots = 2});
                                s.args.cache.scales_page_table = s.args.cache.page_table;
                              }),
        bad<StoreSlotsSample>("static_scale_of_zero", "cache.scales", "positive and finite",
                              [](auto& s) {
                                s.args.cache =
                                    make_cache(s.arena, {.dtype = DType::fp8_e4m3, .slots = 2});
                                s.args.cache.scales->strides = {};
                                s.args.cache.scales->store({0, 0, 0, 0, 0, 0}, 0.0);
                              }),
        bad<StoreSlotsSample>("value_of_another_shape", "value", "must be f32[5, 2, 8]",
                              [](auto& s) { s.args.value->shape[0] = 4; }),
        bad_type<StoreSlotsSample>("value_of_another_dtype", "value", "must be f32, got bf16",
                                   [](auto& s) { s.args.value->dtype = DType::bf16; }),
        bad<StoreSlotsSample>("value_not_dense", "value", "dense in its last dimension",
                              [](auto& s) {
                                s.args.value->shape[2] = 8;
                                s.args.value->strides = {8, 8, 2};
                              }),
        bad<StoreSlotsSample>("value_in_the_cache", "cache.blocks", "apart from 'value'",
                              [](auto& s) { s.args.value->data = s.args.cache.blocks.data; }),
        bad<StoreSlotsSample>("slots_in_the_cache", "cache.blocks", "apart from 'slots'",
                              [](auto& s) {
                                s.args.slots->data = s.args.cache.blocks.data;
                                for (std::int64_t i = 0; i < kTokens; ++i) {
                                  s.args.slots->template as<std::int64_t>()[i] = -1;
                                }
                              }),
        bad<StoreSlotsSample>("pair_at_the_value_side", "side", "x goes to the keys",
                              [](auto& s) { s.args.side = KvSide::value; }),
        bad<StoreSlotsSample>("pair_without_values", "cache.blocks", "a cache with values",
                              [](auto& s) { s.args.cache.blocks.shape[1] = 1; }),
        bad<StoreScalesSample>("slots", "scales", "must be bf16[tokens, 2, 2]",
                               [](auto& s) { s.args.scales.shape[2] = 1; }),
        bad<StoreScalesSample>("nan", "scales", "nan at [1, 0, 1]",
                               [](auto& s) {
                                 s.args.scales.store({1, 0, 1}, kNan);
                               }),
        bad<StoreScalesSample>("cache_without_scales", "cache.scales", "must be given",
                               [](auto& s) {
                                 s.args.cache = make_cache(s.arena, {.dtype = DType::fp8_e4m3});
                               }),
        bad<StoreScalesSample>("static_scales", "cache.scales", "static scales are never written",
                               [](auto& s) { s.args.cache.scales->strides = {}; })),
    bad_input_name);

INSTANTIATE_TEST_SUITE_P(
    CopyPages, BadInputTest,
    testing::Values(bad<CopyPagesSample>("target_twice", "pairs", "got 5 at [0, 1] and [1, 1]",
                                         [](auto& s) {
                                           s.args.pairs.store({0, 1}, 5);
                                         }),
                    bad<CopyPagesSample>("target_is_a_source", "pairs",
                                         "got 4 at [0, 0] and [1, 1]",
                                         [](auto& s) {
                                           s.args.pairs.store({1, 1}, 4);
                                         }),
                    bad<CopyPagesSample>("id_past_the_pages", "pairs", "got 7 at [1, 0]",
                                         [](auto& s) {
                                           s.args.pairs.store({1, 0}, 7);
                                         }),
                    bad<CopyPagesSample>("three_columns", "pairs", "must be u32[count, 2]",
                                         [](auto& s) { s.args.pairs.shape[1] = 3; }),
                    bad<CopyPagesSample>(
                        "own_scale_pages", "cache.scales_page_table", "pages of their own",
                        [](auto& s) { s.args.cache.scales_page_table = s.args.cache.page_table; })),
    bad_input_name);

INSTANTIATE_TEST_SUITE_P(
    Rows, BadInputTest,
    testing::Values(
        bad<RemapSparseIndicesSample>("out_shape", "out", "must be i32[5, 2]",
                                      [](auto& s) { s.args.out.shape[1] = 1; }),
        bad<RemapSparseIndicesSample>("out_over_part_of_indices", "out", "apart from 'indices'",
                                      [](auto& s) {
                                        s.args.out.data =
                                            s.args.indices.template as<std::byte>() + 8;
                                      }),
        // Both have gaps; the ends of neither lie in the other.
        bad<RemapSparseIndicesSample>(
            "out_between_rows_of_indices", "out", "apart from 'indices'",
            [](auto& s) {
              const TensorView buffer = s.arena.filled(DType::i32, {kTokens + 2, 10}, 0);
              s.args.indices.data = buffer.as<std::byte>() + 16;
              s.args.indices.strides = {10, 1};
              s.args.out.data = buffer.as<std::byte>();
              s.args.out.strides = {10, 4};
            }),
        bad<RemapSparseIndicesSample>("more_rows_than_i32", "cache.blocks", "fewer than 2^31 rows",
                                      [](auto& s) {
                                        s.args.cache.blocks.shape[0] = std::int64_t{1} << 29;
                                        s.args.cache.blocks.strides[0] = 0;
                                      }),
        bad<MergeStatesSample>("no_states", "states", "at least one state",
                               [](auto& s) { s.args.states.shape[0] = 0; }),
        bad<MergeStatesSample>("lses_shape", "lses", "must be f32[2, 5, 3]",
                               [](auto& s) { s.args.lses.shape[0] = 1; }),
        bad<MergeStatesSample>("out_over_a_state", "out", "apart from 'states'",
                               [](auto& s) { s.args.out.data = s.args.states.data; }),
        bad<QuantizeFp8Sample>("group_zero", "group_size", "got 0",
                               [](auto& s) { s.args.group_size = 0; }),
        bad<QuantizeFp8Sample>("group_minus_two", "group_size", "got -2",
                               [](auto& s) { s.args.group_size = -2; }),
        bad<QuantizeFp8Sample>("scale_shape", "scale", "must be f32[5, 2]",
                               [](auto& s) { s.args.group_size = 5; }),
        bad<QuantizeFp8Sample>("scale_broadcast", "scale", "without strides of 0",
                               [](auto& s) { s.args.scale.strides[0] = 0; }),
        bad<QuantizeFp8Sample>("bound_nan", "scale_upper_bound", "got nan",
                               [](auto& s) { s.args.scale_upper_bound = kNan; }),
        bad<QuantizeFp8Sample>("bound_zero", "scale_upper_bound", "got 0",
                               [](auto& s) { s.args.scale_upper_bound = 0.0; }),
        bad_type<QuantizeFp8Sample>("out_dtype", "out", "must be fp8_e4m3 or fp8_e5m2",
                                    [](auto& s) { s.args.out.dtype = DType::i8; }),
        bad<RowOffsetsSample>("sum_past_u32", "cache_lengths", "fewer than 2^32 keys",
                              [](auto& s) { s.args.cache_lengths.store({0}, 4294967295.0); }),
        bad<RowOffsetsSample>("step_back", "row_offsets", "monotone",
                              [](auto& s) { s.args.row_offsets.store({1}, 6); }),
        bad<RowOffsetsSample>("out_over_the_offsets", "out", "apart from 'row_offsets'",
                              [](auto& s) { s.args.out.data = s.args.row_offsets.data; })),
    bad_input_name);

}  // namespace
}  // namespace quire::test
