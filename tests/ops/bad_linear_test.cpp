// SPDX-License-Identifier: Apache-2.0
// linear. Its weights are checked by the code that bad_qkv_test.cpp tests: here one row of each kind.
#include <limits>

#include "ops/bad_input.h"
#include "ops/sample_linear.h"

namespace quire::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

INSTANTIATE_TEST_SUITE_P(
    Linear, BadInputTest,
    testing::Values(
        bad<LinearSample>("x_of_one_dimension", "x", "must be f32[tokens, hidden], got f32[5]",
                          [](auto& s) { s.args.x.rank = 1; }),
        bad<LinearSample>("x_without_columns", "x", "at least 1 in every size",
                          [](auto& s) { s.args.x.shape[1] = 0; }),
        bad<LinearSample>("x_strided", "x", "stride 1", [](auto& s) { s.args.x.strides[1] = 2; }),
        bad_type<LinearSample>("x_of_integers", "x", "fp8_e4m3",
                               [](auto& s) { s.args.x.dtype = DType::i32; }),
        bad<LinearSample>("out_of_other_tokens", "out", "must be bf16[5, N], got bf16[4, 24]",
                          [](auto& s) { s.args.out.shape[0] = 4; }),
        bad<LinearSample>("out_broadcast", "out", "without strides of 0",
                          [](auto& s) { s.args.out.strides[0] = 0; }),
        bad<LinearSample>("out_over_x", "out", "apart from 'x'",
                          [](auto& s) { s.args.out.data = s.args.x.data; }),
        bad<LinearSample>("out_over_the_weight", "out", "apart from 'weight'",
                          [](auto& s) { s.args.out.data = s.args.weight.data.data; }),
        bad_type<LinearSample>("out_of_fp8", "out", "must be f32, f16 or bf16",
                               [](auto& s) { s.args.out.dtype = DType::fp8_e4m3; }),
        bad<LinearSample>("weight_transposed", "weight", "must be bf16[24, 12], got bf16[12, 24]",
                          [](auto& s) {
                            std::swap(s.args.weight.data.shape[0], s.args.weight.data.shape[1]);
                          }),
        bad<LinearSample>("fewer_columns_than_rows", "weight", "must be bf16[23, 12]",
                          [](auto& s) { s.args.out.shape[1] = 23; }),
        bad<LinearSample>("bias_too_short", "bias", "must be f32[24]",
                          [](auto& s) { s.args.bias->shape[0] = 12; }),
        bad_type<LinearSample>("bias_of_a_third_dtype", "bias", "must be f32 or bf16",
                               [](auto& s) { s.args.bias->dtype = DType::f16; }),
        bad<LinearSample>("input_scale_without_fp8", "input_scale", "absent without an fp8 x",
                          [](auto& s) {
                            s.args.input_scale = s.arena.filled(DType::f32, {1, 1}, 1);
                          }),
        bad<LinearSample>("scale_of_a_dense_weight", "weight.scale",
                          "absent for weights of format dense",
                          [](auto& s) {
                            s.args.weight.scale = s.arena.filled(DType::f32, {1, 1}, 1);
                          }),
        bad<LinearSample>("int8_activations_of_a_dense_weight", "activations",
                          "exact for weights of format dense",
                          [](auto& s) { s.args.activations = Activations::int8; }),
        bad<LinearFp8Sample>("without_input_scale", "input_scale", "given for an fp8 x",
                             [](auto& s) { s.args.input_scale.reset(); }),
        bad<LinearFp8Sample>("input_scale_shape", "input_scale",
                             "f32[1, 1], f32[5, 1] or f32[5, 2]",
                             [](auto& s) { s.args.input_scale->shape[0] = 4; }),
        bad<LinearFp8Sample>("weight_scale_nan", "weight.scale", "got nan at [0, 1]",
                             [](auto& s) {
                               s.args.weight.scale->store({0, 1}, kNan);
                             }),
        bad<LinearGptqSample>("rows_not_of_eight", "weight", "a multiple of 8 rows",
                              [](auto& s) { s.args.out.shape[1] = 23; }),
        bad<LinearGgufSample>("gguf_bytes", "weight", "must be u8[24, 22]",
                              [](auto& s) { s.args.weight.data.shape[1] = 21; })),
    bad_input_name);

}  // namespace
}  // namespace quire::test
