// SPDX-License-Identifier: Apache-2.0
// Caches, row formats, scales, page tables and ragged batches. What check_batch says once holds for
// every op that calls it; the rows go through several of them.
#include <cmath>

#include "ops/bad_input.h"
#include "ops/sample_attention.h"
#include "ops/sample_cache_ops.h"
#include "ops/sample_latent.h"
#include "ops/sample_qkv.h"

namespace quire::test {
namespace {

template <typename T> void put(TensorView& view, std::int64_t index, T value) {
  view.as<T>()[index] = value;
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// One broadcast scale for everything.
void make_static(PagedKVCache& cache, double value) {
  cache.scales->strides = {};
  cache.scales->store({0, 0, 0, 0, 0, 0}, value);
}

INSTANTIATE_TEST_SUITE_P(
    Blocks, BadInputTest,
    testing::Values(
        bad<FlashAttentionSample>("kv_of_three", "cache.blocks", "2 or 1 (K only)",
                                  [](auto& s) { s.args.cache.blocks.shape[1] = 3; }),
        bad<FlashAttentionSample>("page_size_zero", "cache.blocks", "page size, heads and row",
                                  [](auto& s) { s.args.cache.blocks.shape[3] = 0; }),
        bad<FlashAttentionSample>("row_not_dense", "cache.blocks", "dense in its last dimension",
                                  [](auto& s) { s.args.cache.blocks.strides[5] = 2; }),
        bad<StoreSample>("written_pages_that_overlap", "cache.blocks", "do not share memory",
                         [](auto& s) { s.args.cache.blocks.strides[0] /= 4; }),
        bad<StoreSample>("written_blocks_broadcast", "cache.blocks", "without strides of 0",
                         [](auto& s) { s.args.cache.blocks.strides[0] = 0; }),
        bad<FlashAttentionSample>("layer_past_the_end", "layer", "must be in [0, 2), got 2",
                                  [](auto& s) { s.args.layer = 2; }),
        bad<StoreSample>("layer_negative", "layer", "must be in [0, 2), got -1",
                         [](auto& s) { s.args.layer = -1; }),
        bad<MlaPrefillPlanSample>("layer_of_a_plan", "layer", "in [0, 2)",
                                  [](auto& s) { s.args.layer = 7; }),
        bad_type<FlashAttentionSample>("packed_blocks", "cache.blocks", "got u4[6, 2, 2, 4, 2, 8]",
                                       [](auto& s) { s.args.cache.blocks.dtype = DType::u4; }),
        bad_type<FlashAttentionSample>("bytes_without_a_format", "cache.blocks",
                                       "without a row_format",
                                       [](auto& s) { s.args.cache.blocks.dtype = DType::u8; }),
        bad<RmsNormValueSample>("no_values_in_mla", "cache.blocks", "a cache with values",
                                [](auto& s) { s.args.cache.blocks.shape[1] = 1; }),
        // Only slots take the place of lengths and page table.
        bad<FlashAttentionSample>("no_page_table", "cache.page_table", "must be given",
                                  [](auto& s) { s.args.cache.page_table = {}; }),
        bad<StoreSample>("no_lengths", "cache.cache_lengths",
                         "must be given: u32 [batch], got none",
                         [](auto& s) { s.args.cache.cache_lengths = {}; }),
        bad<MlaDecodeSample>("a_pool_alone", "cache.cache_lengths", "must be given",
                             [](auto& s) {
                               s.args.cache.cache_lengths = {};
                               s.args.cache.page_table = {};
                             }),
        bad<CopyPagesSample>("copy_without_a_table", "cache.page_table", "must be given",
                             [](auto& s) { s.args.cache.page_table = {}; }),
        bad<RemapSparseIndicesSample>("remap_without_a_table", "cache.page_table", "must be given",
                                      [](auto& s) { s.args.cache.page_table = {}; }),
        bad<MlaIndexerSample>("mla_with_values", "cache.blocks", "an MLA cache",
                              [](auto& s) {
                                s.args.cache =
                                    make_cache(s.arena, {.dtype = DType::fp8_e4m3, .slots = 1});
                              })),
    bad_input_name);

INSTANTIATE_TEST_SUITE_P(
    RowFormats, BadInputTest,
    testing::Values(
        bad<FlashAttentionSample>(
            "of_another_size", "cache.row_format", "32 bytes like a row of blocks",
            [](auto& s) { s.args.cache.row_format = RowFormat::uniform(DType::f32, 7); }),
        bad<FlashAttentionSample>("without_parts", "cache.row_format", "0 parts",
                                  [](auto& s) { s.args.cache.row_format = RowFormat{}; }),
        bad<FlashAttentionSample>("of_too_many_parts", "cache.row_format", "5 parts",
                                  [](auto& s) {
                                    s.args.cache.row_format = RowFormat::uniform(DType::f32, 8);
                                    s.args.cache.row_format->num_parts = 5;
                                  }),
        bad<FlashAttentionSample>("part_outside_the_row", "cache.row_format",
                                  "a part outside the row",
                                  [](auto& s) {
                                    s.args.cache.row_format = RowFormat::uniform(DType::f32, 8);
                                    s.args.cache.row_format->parts[0].offset_bytes = 4;
                                  }),
        bad<FlashAttentionSample>("part_of_integers", "cache.row_format", "a part of i32",
                                  [](auto& s) {
                                    s.args.cache.row_format = RowFormat::uniform(DType::i32, 8);
                                  }),
        bad<FlashAttentionSample>("part_without_columns", "cache.row_format", "0 columns wide",
                                  [](auto& s) {
                                    s.args.cache.row_format = RowFormat::uniform(DType::f32, 8);
                                    s.args.cache.row_format->parts[0].width = 0;
                                  }),
        bad<FlashAttentionSample>("scales_of_integers", "cache.row_format", "scales of i32",
                                  [](auto& s) {
                                    s.args.cache.row_format =
                                        RowFormat::scaled(DType::f32, 8, 4, DType::i32);
                                  }),
        bad<FlashAttentionSample>("in_row_scales_outside_the_row", "cache.row_format",
                                  "scales outside the row",
                                  [](auto& s) {
                                    s.args.cache.row_format = RowFormat::scaled(DType::f32, 8, 4);
                                    RowPart& part = s.args.cache.row_format->parts[0];
                                    part.scale_source = ScaleSource::in_row;
                                    part.scale_offset_bytes = 28;
                                  }),
        bad<FlashAttentionSample>("planes_of_two_dtypes", "cache.row_format",
                                  "two plane scale dtypes",
                                  [](auto& s) {
                                    s.args.cache.row_format = RowFormat::mla_fp8_token(24, 4);
                                    s.args.cache.row_format->parts[1].scale_dtype = DType::f16;
                                  }),
        bad<FlashAttentionSample>("granularity_zero", "cache.row_format", "a scale for 0 columns",
                                  [](auto& s) {
                                    s.args.cache.row_format = RowFormat::scaled(DType::f32, 8, 4);
                                    s.args.cache.row_format->parts[0].granularity = 0;
                                  }),
        bad<FlashAttentionSample>("parts_that_overlap", "cache.row_format",
                                  "parts that overlap in byte 12",
                                  [](auto& s) {
                                    RowFormat format = RowFormat::uniform(DType::f32, 4);
                                    format.parts[1] = {
                                        .dtype = DType::f32, .width = 4, .offset_bytes = 12};
                                    format.num_parts = 2;
                                    format.row_bytes = 32;
                                    s.args.cache.row_format = format;
                                  }),
        bad<FlashAttentionSample>(
            "rows_beyond_2_to_30_bytes", "cache.blocks", "with rows of at most 2^30 bytes",
            [](auto& s) { s.args.cache.blocks.shape[5] = (std::int64_t{1} << 28) + 1; }),
        bad<FlashAttentionSample>(
            "table_of_scales_without_scales", "cache.scales_page_table", "absent without scales",
            [](auto& s) { s.args.cache.scales_page_table = s.args.cache.page_table; }),
        bad<FlashAttentionSample>("int8_without_scales", "cache.scales", "given for an i8 cache",
                                  [](auto& s) {
                                    s.args.cache = make_cache(s.arena, {.dtype = DType::i8});
                                  }),
        bad<FlashAttentionSample>("int8_part_without_scales", "cache.row_format",
                                  "an i8 part without scales",
                                  [](auto& s) {
                                    s.args.cache = make_cache(s.arena, {.dtype = DType::i8});
                                    s.args.cache.row_format = RowFormat::uniform(DType::i8, 8);
                                  }),
        bad<FlashAttentionSample>(
            "int4_part_without_scales", "cache.row_format", "an i4 part without scales",
            [](auto& s) { s.args.cache.row_format = RowFormat::uniform(DType::i4, 64); }),
        bad<FlashAttentionSample>("int4_group_of_16", "cache.row_format",
                                  "a scale per 16 columns of i4, not per 32 or 64",
                                  [](auto& s) {
                                    s.args.cache.row_format = RowFormat::int4(48, 16);
                                  }),
        bad<FlashAttentionSample>(
            "int4_group_of_a_row", "cache.row_format", "a scale per 128 columns of u4",
            [](auto& s) { s.args.cache.row_format = RowFormat::int4(128, 128, DType::f16, true); }),
        bad<StoreSample>("int4_of_an_odd_width", "cache.row_format",
                         "51 columns of i4, which come in pairs",
                         [](auto& s) { s.args.cache.row_format = RowFormat::int4(51); }),
        bad<StoreSample>("int4_zeros_in_a_plane", "cache.row_format",
                         "a u4 part whose scales and zeros are not in the row",
                         [](auto& s) {
                           s.args.cache.row_format = RowFormat::scaled(DType::u4, 64, 32);
                         }),
        bad<StoreSample>("int4_from_an_odd_column", "cache.row_format", "i4 from the odd column 3",
                         [](auto& s) {
                           RowFormat format = RowFormat::uniform(DType::f32, 3);
                           format.parts[1] = {.dtype = DType::i4,
                                              .width = 32,
                                              .offset_bytes = 12,
                                              .scale_source = ScaleSource::plane,
                                              .granularity = 32};
                           format.num_parts = 2;
                           format.row_bytes = 28;
                           s.args.cache.row_format = format;
                         }),
        bad<StoreSample>("int4_of_powers_of_two", "cache.row_format", "e8m0 scales of i4 columns",
                         [](auto& s) {
                           s.args.cache.row_format = RowFormat::int4(32, 32, DType::e8m0);
                         }),
        bad<FlashAttentionSample>("int4_of_another_size", "cache.row_format",
                                  "32 bytes like a row of blocks, got i4x64",
                                  [](auto& s) { s.args.cache.row_format = RowFormat::int4(64); }),
        bad<FlashAttentionSample>("plane_without_scales", "cache.scales", "given for rows of",
                                  [](auto& s) {
                                    s.args.cache.row_format = RowFormat::scaled(DType::f32, 8, 4);
                                  }),
        bad<StoreSample>("scales_without_a_plane", "cache.scales", "absent for rows of",
                         [](auto& s) {
                           s.args.cache.row_format = RowFormat::uniform(DType::fp8_e4m3, 8);
                         })),
    bad_input_name);

INSTANTIATE_TEST_SUITE_P(
    Scales, BadInputTest,
    testing::Values(
        bad<StoreSample>("too_many_slots", "cache.scales", "1 to 8",
                         [](auto& s) { s.args.cache.scales->shape[5] = 9; }),
        bad<StoreSample>("slots_that_divide_badly", "cache.scales", "got f32[6, 2, 2, 4, 2, 5]",
                         [](auto& s) { s.args.cache.scales->shape[5] = 5; }),
        bad<StoreSample>("slots_against_the_format", "cache.scales", "6, 2, 2, 4, 2, 2]",
                         [](auto& s) {
                           s.args.cache.row_format = RowFormat::scaled(DType::fp8_e4m3, 8, 8);
                         }),
        bad<StoreSample>("another_page_size", "cache.scales", "got f32[6, 2, 2, 2, 2, 2]",
                         [](auto& s) { s.args.cache.scales->shape[3] = 2; }),
        bad<StoreSample>("fewer_pages_than_blocks", "cache.scales", "of 6 pages or more",
                         [](auto& s) { s.args.cache.scales->shape[0] = 5; }),
        bad<StoreSample>("shared_by_heads_yet_written", "cache.scales", "without strides of 0",
                         [](auto& s) { s.args.cache.scales->strides[4] = 0; }),
        bad_type<StoreSample>("dtype_against_the_format", "cache.scales", "must be f16",
                              [](auto& s) {
                                s.args.cache.row_format =
                                    RowFormat::scaled(DType::fp8_e4m3, 8, 4, DType::f16);
                              }),
        bad<StoreSample>("static_nan", "cache.scales", "got nan on page 4, head 0, slot 0",
                         [](auto& s) { make_static(s.args.cache, kNan); }),
        bad<FlashAttentionInt8Sample>("static_zero", "cache.scales", "positive and finite",
                                      [](auto& s) { make_static(s.args.cache, 0.0); }),
        bad<FusedQkvFp8Sample>("static_negative", "cache.scales", "got -1 on page",
                               [](auto& s) { make_static(s.args.cache, -1.0); }),
        bad<StoreSample>("static_per_page_nan", "cache.scales", "on page 1, head 1, slot 1",
                         [](auto& s) {
                           s.args.cache.scales->strides[3] = 0;
                           s.args.cache.scales->store({1, 0, kLayer, 0, 1, 1}, kNan);
                         }),
        bad<FlashAttentionInt8Sample>(
            "own_page_id", "cache.scales_page_table", "got 7 in sequence 0, column 1",
            [](auto& s) { put<std::uint32_t>(*s.args.cache.scales_page_table, 1, 7); }),
        bad<FlashAttentionInt8Sample>(
            "own_table_shape", "cache.scales_page_table", "must be u32[2, 3]",
            [](auto& s) { s.args.cache.scales_page_table->shape[1] = 2; })),
    bad_input_name);

INSTANTIATE_TEST_SUITE_P(
    Batches, BadInputTest,
    testing::Values(
        bad<FlashAttentionSample>("offsets_too_long", "row_offsets", "must be u32[3], got u32[4]",
                                  [](auto& s) {
                                    s.args.row_offsets = s.arena.of(DType::u32, {4}, {0, 2, 5, 5});
                                  }),
        bad<FlashAttentionSample>("offsets_strided", "row_offsets", "stride 1",
                                  [](auto& s) { s.args.row_offsets.strides[0] = 2; }),
        bad<RopeSample>("offsets_from_one", "row_offsets", "must be 0 at [0], got 1",
                        [](auto& s) { put<std::uint32_t>(s.args.row_offsets, 0, 1); }),
        bad<MlaDecodeSample>("offsets_step_back", "row_offsets", "at least 6 at [2], got 5",
                             [](auto& s) { put<std::uint32_t>(s.args.row_offsets, 1, 6); }),
        bad<FusedQkvSample>("offsets_end_short", "row_offsets", "must be 5, the number of tokens",
                            [](auto& s) { put<std::uint32_t>(s.args.row_offsets, 2, 4); }),
        bad<StoreScalesSample>("offsets_end_far", "row_offsets", "at [2], got 6",
                               [](auto& s) { put<std::uint32_t>(s.args.row_offsets, 2, 6); }),
        bad<RemapSparseIndicesSample>("offsets_of_indices", "row_offsets", "the number of tokens",
                                      [](auto& s) {
                                        put<std::uint32_t>(s.args.row_offsets, 2, 3);
                                      }),
        bad<FlashAttentionSample>("batch_of_page_table", "cache.page_table",
                                  "must be u32[2, max_pages]",
                                  [](auto& s) { s.args.cache.page_table.shape[0] = 1; }),
        bad<FlashAttentionSample>("page_table_rows_strided", "cache.page_table", "stride 1",
                                  [](auto& s) { s.args.cache.page_table.strides[1] = 2; }),
        bad<FlashAttentionSample>(
            "length_past_the_table", "cache.cache_lengths", "got 11 + 2 = 13 tokens in sequence 0",
            [](auto& s) { put<std::uint32_t>(s.args.cache.cache_lengths, 0, 11); }),
        bad<MlaPrefillPlanSample>("length_of_four_billion", "cache.cache_lengths",
                                  "4294967295 + 3 = 4294967298 tokens in sequence 1",
                                  [](auto& s) {
                                    put<std::uint32_t>(s.args.cache.cache_lengths, 1, 0xffffffffu);
                                  }),
        bad<FlashAttentionSample>("page_id", "cache.page_table", "got 7 in sequence 0, column 1",
                                  [](auto& s) {
                                    put<std::uint32_t>(s.args.cache.page_table, 1, 7);
                                  }),
        bad<SparseMlaSample>("page_id_just_below_the_sentinel", "cache.page_table",
                             "got 4294967294 in sequence 1, column 0",
                             [](auto& s) {
                               put<std::uint32_t>(s.args.cache.page_table, 3, 0xfffffffeu);
                             }),
        bad<SparseMlaSample>(
            "page_id_of_the_extra_cache", "extra.cache.page_table", "got 7 in sequence 0, column 0",
            [](auto& s) { put<std::uint32_t>(s.args.extra->cache.page_table, 0, 7); }),
        bad<FlashAttentionSample>("bound_of_new_tokens", "cache.max_seq_length", "at least 3",
                                  [](auto& s) { s.args.cache.max_seq_length = 2; }),
        bad<FlashAttentionSample>("bound_of_keys", "cache.max_cache_length", "at least 5",
                                  [](auto& s) { s.args.cache.max_cache_length = 4; })),
    bad_input_name);

}  // namespace
}  // namespace quire::test
