// SPDX-License-Identifier: Apache-2.0
// fused_qkv_matmul and its weights.
#include <limits>

#include "ops/bad_input.h"
#include "ops/sample_qkv.h"

namespace quire::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

INSTANTIATE_TEST_SUITE_P(
    Qkv, BadInputTest,
    testing::Values(
        bad<FusedQkvSample>("weight_transposed", "weight", "must be bf16[48, 12], got bf16[12, 48]",
                            [](auto& s) {
                              std::swap(s.args.weight.data.shape[0], s.args.weight.data.shape[1]);
                            }),
        bad<FusedQkvSample>("rows_are_not_q_and_kv", "weight", "must be bf16[47, 12]",
                            [](auto& s) { s.args.out.shape[1] = 15; }),
        bad<FusedQkvSample>("fewer_rows_than_k_and_v", "weight",
                            "must be bf16[32, 12], got bf16[31, 12]",
                            [](auto& s) {
                              s.args.out = s.arena.poisoned(DType::bf16, {kTokens, 0});
                              s.args.weight.data.shape[0] = 31;
                            }),
        bad<FusedQkvMlaSample>("mla_rows_are_not_q_and_row", "weight", "must be f16[28, 12]",
                               [](auto& s) { s.args.weight.data.shape[0] = 40; }),
        bad<FusedQkvMlaSample>("mla_of_two_heads", "cache.blocks", "of one head",
                               [](auto& s) {
                                 s.args.cache =
                                     make_cache(s.arena, {.kv = 1, .heads = 2, .row = 6});
                               }),
        bad<FusedQkvSample>("x_strided", "x", "stride 1", [](auto& s) { s.args.x.strides[1] = 2; }),
        bad<FusedQkvSample>("x_without_columns", "x", "at least 1 in every size",
                            [](auto& s) { s.args.x.shape[1] = 0; }),
        bad<FusedQkvSample>("weight_strided", "weight", "stride 1",
                            [](auto& s) { s.args.weight.data.strides[1] = 3; }),
        bad<FusedQkvSample>("out_broadcast", "out", "without strides of 0",
                            [](auto& s) { s.args.out.strides[0] = 0; }),
        bad<FusedQkvSample>("out_over_x", "out", "apart from 'x'",
                            [](auto& s) { s.args.out.data = s.args.x.data; }),
        bad<FusedQkvSample>("out_in_the_cache", "cache.blocks", "apart from 'out'",
                            [](auto& s) {
                              s.args.out.data = s.args.cache.blocks.template as<std::byte>() + 64;
                            }),
        bad<FusedQkvSample>("bias_too_short", "bias", "must be f32[48]",
                            [](auto& s) { s.args.bias->shape[0] = 32; }),
        bad_type<FusedQkvSample>("bias_of_a_third_dtype", "bias", "must be f32 or bf16",
                                 [](auto& s) { s.args.bias->dtype = DType::f16; }),
        bad<FusedQkvSample>("input_scale_without_fp8", "input_scale", "absent without an fp8 x",
                            [](auto& s) {
                              s.args.input_scale = s.arena.filled(DType::f32, {1, 1}, 1);
                            }),
        bad<FusedQkvSample>("scale_of_a_dense_weight", "weight.scale",
                            "absent for weights of format dense",
                            [](auto& s) {
                              s.args.weight.scale = s.arena.filled(DType::f32, {1, 1}, 1);
                            }),
        bad<FusedQkvSample>("zeros_of_a_dense_weight", "weight.zeros",
                            "absent for weights of format dense",
                            [](auto& s) {
                              s.args.weight.zeros = s.arena.filled(DType::u8, {1, 1}, 1);
                            })),
    bad_input_name);

INSTANTIATE_TEST_SUITE_P(
    QkvFp8, BadInputTest,
    testing::Values(bad<FusedQkvFp8Sample>("without_weight_scale", "weight.scale",
                                           "given for weights of format fp8",
                                           [](auto& s) { s.args.weight.scale.reset(); }),
                    bad<FusedQkvFp8Sample>("weight_scale_shape", "weight.scale",
                                           "f32[1, 1], f32[48, 1] or f32[1, 2]",
                                           [](auto& s) {
                                             s.args.weight.scale->shape = {2, 1};
                                           }),
                    bad<FusedQkvFp8Sample>("weight_scale_nan", "weight.scale", "got nan at [0, 1]",
                                           [](auto& s) {
                                             s.args.weight.scale->store({0, 1}, kNan);
                                           }),
                    bad<FusedQkvFp8Sample>("without_input_scale", "input_scale",
                                           "given for an fp8 x",
                                           [](auto& s) { s.args.input_scale.reset(); }),
                    bad<FusedQkvFp8Sample>("input_scale_shape", "input_scale",
                                           "f32[1, 1], f32[5, 1] or f32[5, 2]",
                                           [](auto& s) { s.args.input_scale->shape[0] = 4; }),
                    bad<FusedQkvFp8Sample>("input_scale_infinite", "input_scale",
                                           "got inf at [4, 0]",
                                           [](auto& s) {
                                             s.args.input_scale->store({4, 0}, kInfinity);
                                           })),
    bad_input_name);

INSTANTIATE_TEST_SUITE_P(
    QkvInt4, BadInputTest,
    testing::Values(
        bad<FusedQkvInt4Sample>("group_of_48", "weight.group_size", "must be 32, 64 or 128, got 48",
                                [](auto& s) { s.args.weight.group_size = 48; }),
        bad<FusedQkvInt4Sample>("group_past_the_columns", "weight.group_size", "a divisor of 64",
                                [](auto& s) { s.args.weight.group_size = 128; }),
        bad<FusedQkvInt4Sample>("without_scale", "weight.scale", "given for weights of format int4",
                                [](auto& s) { s.args.weight.scale.reset(); }),
        bad<FusedQkvInt4Sample>("scale_shape", "weight.scale", "must be bf16[48, 2]",
                                [](auto& s) { s.args.weight.scale->shape[1] = 1; }),
        bad<FusedQkvInt4Sample>("scale_nan", "weight.scale", "nan at [47, 1]",
                                [](auto& s) {
                                  s.args.weight.scale->store({47, 1}, kNan);
                                }),
        bad<FusedQkvInt4Sample>("zeros_shape", "weight.zeros", "must be u8[48, 2]",
                                [](auto& s) { s.args.weight.zeros->shape[1] = 1; }),
        bad<FusedQkvInt4Sample>("rows_inside_a_byte", "weight", "start on a whole byte",
                                [](auto& s) { s.args.weight.data.strides[0] = 63; }),
        bad<FusedQkvInt4Sample>("perm_repeats", "weight.perm", "got 62 at [63]",
                                [](auto& s) { s.args.weight.perm->store({63}, 62); }),
        bad<FusedQkvInt4Sample>("perm_out_of_range", "weight.perm", "got 64 at [0]",
                                [](auto& s) { s.args.weight.perm->store({0}, 64); }),
        bad<FusedQkvInt4Sample>("perm_negative", "weight.perm", "got -1 at [5]",
                                [](auto& s) { s.args.weight.perm->store({5}, -1); }),
        bad<FusedQkvGptqSample>("gptq_packed_along_n", "weight", "must be i32[8, 48]",
                                [](auto& s) {
                                  s.args.weight.data.shape = {64, 6};
                                }),
        bad<FusedQkvGptqSample>("gptq_zeros_shape", "weight.zeros", "must be i32[2, 6]",
                                [](auto& s) { s.args.weight.zeros->shape[1] = 48; }),
        bad<FusedQkvAwqSample>("awq_packed_along_k", "weight", "must be i32[64, 6]",
                               [](auto& s) {
                                 s.args.weight.data.shape = {8, 48};
                               }),
        bad<FusedQkvAwqSample>("awq_rows_not_of_eight", "weight", "a multiple of 8 rows",
                               [](auto& s) { s.args.out.shape[1] = 15; }),
        bad<FusedQkvGgufSample>("gguf_bytes", "weight", "must be u8[48, 18]",
                                [](auto& s) { s.args.weight.data.shape[1] = 17; }),
        bad<FusedQkvGgufSample>("gguf_q8_0_bytes", "weight", "must be u8[48, 34]",
                                [](auto& s) { s.args.weight.format = WeightFormat::q8_0; }),
        bad<FusedQkvGgufSample>("gguf_q4_1_bytes", "weight", "must be u8[48, 20]",
                                [](auto& s) { s.args.weight.format = WeightFormat::q4_1; }),
        bad<FusedQkvGgufSample>("gguf_q5_0_bytes", "weight", "must be u8[48, 22]",
                                [](auto& s) { s.args.weight.format = WeightFormat::q5_0; }),
        bad<FusedQkvGgufSample>("gguf_q5_1_bytes", "weight", "must be u8[48, 24]",
                                [](auto& s) { s.args.weight.format = WeightFormat::q5_1; }),
        bad<FusedQkvGgufSample>("gguf_mxfp4_bytes", "weight", "must be u8[48, 17]",
                                [](auto& s) { s.args.weight.format = WeightFormat::mxfp4; }),
        bad<FusedQkvGgufSample>("gguf_q5_k_bytes", "weight", "must be u8[48, 176]",
                                [](auto& s) {
                                  s.args.weight.format = WeightFormat::q5_k;
                                  s.args.x = s.arena.random(DType::f32, {kTokens, 256});
                                }),
        bad<FusedQkvGgufSample>("gguf_iq4_nl_columns", "weight",
                                "a multiple of 32 columns for iq4_nl",
                                [](auto& s) {
                                  s.args.weight.format = WeightFormat::iq4_nl;
                                  s.args.x = s.arena.random(DType::f32, {kTokens, 48});
                                }),
        bad<FusedQkvGgufSample>("gguf_q5_k_activations", "activations",
                                "exact for weights of format q5_k",
                                [](auto& s) {
                                  s.args.weight.format = WeightFormat::q5_k;
                                  s.args.weight.data = s.arena.filled(DType::u8, {48, 176}, 0x21);
                                  s.args.x = s.arena.random(DType::f32, {kTokens, 256});
                                  s.args.activations = Activations::int8;
                                }),
        bad<FusedQkvGgufSample>("gguf_q6_k_bytes", "weight", "must be u8[48, 210]",
                                [](auto& s) {
                                  s.args.weight.format = WeightFormat::q6_k;
                                  s.args.x = s.arena.random(DType::f32, {kTokens, 256});
                                }),
        bad<FusedQkvGgufSample>("gguf_k_quant_needs_256", "weight",
                                "a multiple of 256 columns for q4_k",
                                [](auto& s) { s.args.weight.format = WeightFormat::q4_k; })),
    bad_input_name);

}  // namespace
}  // namespace quire::test
