// SPDX-License-Identifier: Apache-2.0
// compress_keys, and what other ops say of rows and keys that stand for several tokens.
#include "ops/bad_input.h"
#include "ops/sample_compress_keys.h"
#include "ops/sample_latent.h"

namespace quire::test {
namespace {

INSTANTIATE_TEST_SUITE_P(
    CompressKeys, BadInputTest,
    testing::Values(
        bad<CompressKeysSample>("three_series", "kv", "8 or 16 wide, for rows of 8 columns",
                                [](auto& s) {
                                  s.args.kv = s.arena.random(DType::bf16, {kTokens, 24});
                                  s.args.gate = s.arena.random(DType::bf16, {kTokens, 24});
                                  s.args.bias = s.arena.random(DType::f32, {2, 24});
                                }),
        bad<CompressKeysSample>("gate_narrower", "gate", "must be bf16[5, 16]",
                                [](auto& s) { s.args.gate.shape[1] = 8; }),
        bad_type<CompressKeysSample>("gate_of_another_type", "gate", "must be bf16, got f16[5, 16]",
                                     [](auto& s) {
                                       s.args.gate = s.arena.random(DType::f16, {kTokens, 16});
                                     }),
        bad<CompressKeysSample>("no_ratio", "bias", "of a token or more",
                                [](auto& s) { s.args.bias.shape[0] = 0; }),
        bad<CompressKeysSample>("bias_of_one_series", "bias", "[ratio, 16]",
                                [](auto& s) { s.args.bias.shape[1] = 8; }),
        bad<CompressKeysSample>("gamma_longer", "gamma", "[8]",
                                [](auto& s) { s.args.gamma = s.arena.random(DType::f32, {9}); }),
        bad<CompressKeysSample>("rope_odd", "freqs_cis", "an even number of columns from 2 to 8",
                                [](auto& s) { s.args.freqs_cis.shape[1] = 5; }),
        bad<CompressKeysSample>("rope_wider", "freqs_cis", "from 2 to 8",
                                [](auto& s) {
                                  s.args.freqs_cis = s.arena.random(DType::f32, {4, 10});
                                }),
        bad<CompressKeysSample>("too_few_positions", "freqs_cis", "of 3 rows or more",
                                [](auto& s) { s.args.freqs_cis.shape[0] = 2; }),
        bad<CompressKeysSample>("epsilon_zero", "epsilon", "got 0",
                                [](auto& s) { s.args.epsilon = 0.0; }),
        bad_type<CompressKeysSample>("state_narrower_than_kv", "state", "must be bf16 or f32",
                                     [](auto& s) {
                                       s.args.state = s.arena.random(DType::f16, {3, 5, 2, 16});
                                     }),
        bad<CompressKeysSample>("state_too_short", "state", "of 4 rows or more in each slot",
                                [](auto& s) { s.args.state.shape[1] = 3; }),
        bad<CompressKeysSample>("too_few_slots", "state", "of 2 slots or more",
                                [](auto& s) {
                                  s.args.state_slots.reset();
                                  s.args.state.shape[0] = 1;
                                }),
        bad<CompressKeysSample>("slot_past_the_end", "state_slots", "below the 3 slots",
                                [](auto& s) { s.args.state_slots->store({1}, 3); }),
        bad<CompressKeysSample>("slot_twice", "state_slots", "2 twice",
                                [](auto& s) { s.args.state_slots->store({1}, 2); }),
        bad<CompressKeysSample>("state_over_kv", "state", "apart from 'kv'",
                                [](auto& s) { s.args.kv.data = s.args.state.data; }),
        bad<CompressKeysSample>("two_heads", "cache.blocks", "an MLA cache",
                                [](auto& s) {
                                  s.args.cache =
                                      make_cache(s.arena, {.dtype = DType::bf16, .kv = 1});
                                }),
        bad<CompressKeysSample>("rows_past_the_table", "cache.cache_lengths",
                                "13 rows of 2 tokens in sequence 0",
                                [](auto& s) {
                                  s.args.freqs_cis = s.arena.random(DType::f32, {64, 6});
                                  s.args.cache.cache_lengths.store({0}, 24);
                                })),
    bad_input_name);

INSTANTIATE_TEST_SUITE_P(
    CompressedRows, BadInputTest,
    testing::Values(bad<MlaIndexerSample>("no_tokens_per_key", "tokens_per_key", "at least 1",
                                          [](auto& s) { s.args.tokens_per_key = 0; }),
                    bad<SparseMlaSample>("no_tokens_per_row", "extra.tokens_per_row", "at least 1",
                                         [](auto& s) { s.args.extra->tokens_per_row = 0; })),
    bad_input_name);

}  // namespace
}  // namespace quire::test
