// SPDX-License-Identifier: Apache-2.0
// store_index_keys and quantize_index_queries.
#include <limits>

#include "ops/bad_input.h"
#include "ops/sample_index_rows.h"

namespace quire::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

INSTANTIATE_TEST_SUITE_P(
    StoreIndexKeys, BadInputTest,
    testing::Values(
        bad<StoreIndexKeysSample>("narrower_than_the_cache", "x", "8 wide like the cache",
                                  [](auto& s) {
                                    s.args.x = s.arena.random(DType::bf16, {kTokens, 4});
                                  }),
        bad_type<StoreIndexKeysSample>("codes", "x", "must be f32, f16 or bf16",
                                       [](auto& s) { s.args.x.dtype = DType::fp8_e4m3; }),
        bad<StoreIndexKeysSample>("keys_of_bf16", "cache", "rows of fp8_e4m3",
                                  [](auto& s) {
                                    s.args.cache = make_cache(
                                        s.arena,
                                        {.dtype = DType::bf16, .kv = 1, .heads = 1, .row = 8});
                                  }),
        bad<StoreIndexKeysSample>("scale_per_half_row", "cache", "one f32 scale per token",
                                  [](auto& s) {
                                    CacheForm form = kIndexForm;
                                    form.slots = 2;
                                    s.args.cache = make_cache(s.arena, form);
                                  }),
        bad<StoreIndexKeysSample>("static_scales", "cache.scales",
                                  "static scales are never written",
                                  [](auto& s) { s.args.cache.scales->strides = {}; }),
        bad<StoreIndexKeysSample>("layer", "layer", "in [0, 2)", [](auto& s) { s.args.layer = 2; }),
        bad<StoreIndexKeysSample>("weight_alone", "norm_bias", "together with norm_weight",
                                  [](auto& s) { s.args.norm_bias.reset(); }),
        bad<StoreIndexKeysSample>("bias_alone", "norm_weight", "together with norm_bias",
                                  [](auto& s) { s.args.norm_weight.reset(); }),
        bad<StoreIndexKeysSample>("short_bias", "norm_bias", "must be bf16[8]",
                                  [](auto& s) { s.args.norm_bias->shape[0] = 7; }),
        bad<StoreIndexKeysSample>("epsilon_zero", "epsilon", "got 0",
                                  [](auto& s) { s.args.epsilon = 0.0; }),
        bad<StoreIndexKeysSample>("odd_rope", "freqs_cis", "an even number of columns from 2 to 8",
                                  [](auto& s) { s.args.freqs_cis->shape[1] = 3; }),
        bad<StoreIndexKeysSample>("rope_wider_than_the_row", "freqs_cis", "from 2 to 8",
                                  [](auto& s) {
                                    s.args.freqs_cis = s.arena.random(DType::f32, {8, 10});
                                  }),
        bad<StoreIndexKeysSample>("too_few_positions", "freqs_cis", "of 5 rows or more",
                                  [](auto& s) { s.args.freqs_cis->shape[0] = 4; }),
        bad<StoreIndexKeysSample>("hadamard_of_six", "hadamard", "not a power of two",
                                  [](auto& s) {
                                    CacheForm form = kIndexForm;
                                    form.row = 6;
                                    s.args.cache = make_cache(s.arena, form);
                                    s.args.x = s.arena.random(DType::bf16, {kTokens, 6});
                                    s.args.norm_weight->shape[0] = 6;
                                    s.args.norm_bias->shape[0] = 6;
                                  }),
        bad<StoreIndexKeysSample>("x_in_the_cache", "cache.blocks", "apart from 'x'",
                                  [](auto& s) { s.args.x.data = s.args.cache.blocks.data; })),
    bad_input_name);

INSTANTIATE_TEST_SUITE_P(
    QuantizeIndexQueries, BadInputTest,
    testing::Values(
        bad<QuantizeIndexQueriesSample>("weights_of_other_heads", "weights", "must be f32[5, 2]",
                                        [](auto& s) { s.args.weights->shape[1] = 1; }),
        bad<QuantizeIndexQueriesSample>("weights_nan", "weights", "nan at [2, 1]",
                                        [](auto& s) {
                                          s.args.weights->store({2, 1}, kNan);
                                        }),
        bad<QuantizeIndexQueriesSample>("factor_nan", "factor", "got nan",
                                        [](auto& s) { s.args.factor = kNan; }),
        bad<QuantizeIndexQueriesSample>("odd_rope", "freqs_cis", "an even number of columns",
                                        [](auto& s) { s.args.freqs_cis->shape[1] = 3; }),
        bad<QuantizeIndexQueriesSample>("too_few_positions", "freqs_cis", "of 5 rows or more",
                                        [](auto& s) { s.args.freqs_cis->shape[0] = 4; }),
        bad<QuantizeIndexQueriesSample>("hadamard_of_six", "hadamard", "not a power of two",
                                        [](auto& s) {
                                          s.args.q.shape[2] = 6;
                                          s.args.out.shape[2] = 6;
                                        }),
        bad_type<QuantizeIndexQueriesSample>("out_e5m2", "out", "must be fp8_e4m3",
                                             [](auto& s) { s.args.out.dtype = DType::fp8_e5m2; }),
        bad<QuantizeIndexQueriesSample>("out_shape", "out", "must be fp8_e4m3[5, 2, 8]",
                                        [](auto& s) { s.args.out.shape[1] = 1; }),
        bad<QuantizeIndexQueriesSample>("q_scale_shape", "q_scale", "must be f32[5, 2]",
                                        [](auto& s) { s.args.q_scale.shape[1] = 1; }),
        bad<QuantizeIndexQueriesSample>("out_over_q", "out", "apart from 'q'",
                                        [](auto& s) { s.args.out.data = s.args.q.data; })),
    bad_input_name);

}  // namespace
}  // namespace quire::test
