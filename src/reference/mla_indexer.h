// SPDX-License-Identifier: Apache-2.0
// The oracle of the indexer: its result, the scores behind it, and a judge for results that were
// scored in fp32.
//
// The op's own result is defined by scores computed in double (head by head, in order) and rounded
// once to fp32; equal ones go to the lowest position. NaN anywhere in a score makes it NaN, and NaN
// ranks below every number. Keys without a page are not seen at all. A backend sums in fp32, so
// keys whose scores differ by less than the error of such sums may change places: selection_fault
// accepts exactly those sets.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "quire/ops/mla_indexer.h"

namespace quire::reference {

void mla_indexer(const MlaIndexerArgs& args);

// The score of every key [0, num_keys) of the token's sequence, unrounded, whether the mask shows
// the key or not. `token` is a row of q.
std::vector<double> indexer_scores(const MlaIndexerArgs& args, std::int64_t token);

// For every key, how far an fp32 evaluation in any order of sums may be from its score.
std::vector<double> indexer_score_errors(const MlaIndexerArgs& args, std::int64_t token);

// What is wrong with a backend's row [top_k] for a token; empty if it is a legitimate result.
std::string selection_fault(const MlaIndexerArgs& args, std::int64_t token,
                            std::span<const std::int32_t> selected);

// The same for a row of scores [top_k] beside a legitimate row of positions.
std::string scores_fault(const MlaIndexerArgs& args, std::int64_t token,
                         std::span<const std::int32_t> selected, std::span<const float> numbers);

}  // namespace quire::reference
