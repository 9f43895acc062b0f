// SPDX-License-Identifier: Apache-2.0
// Random problems of every op as cases: the objects that cases/*.json hold, so that they are built, poisoned,
// run, replayed and judged exactly as those are. A case follows from what was drawn alone.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fuzz/problems/draw.h"

namespace quire::test {

struct RandomLengths {
  std::vector<std::int64_t> added;
  std::vector<std::int64_t> cached;

  std::int64_t tokens() const;
  // Rows that stand for so many tokens each.
  RandomLengths compressed(std::int64_t tokens_per_row) const;
  nlohmann::json json() const { return {{"new", added}, {"cached", cached}}; }
};

// Sequences of nothing, of one token, of tile borders and of more than a tile; none at all now and then.
RandomLengths random_lengths(Draw& draw, std::int64_t max_new, std::int64_t max_cached);

// Where a case's cache has no page: one page of the first sequence, or none.
void add_hole(Draw& draw, const RandomLengths& lengths, nlohmann::json& cache);

// Keys of their own for all sequences: none, a part of the context, all of it, more. Holes go.
void add_keys(Draw& draw, nlohmann::json& object);

// bf16 twice as often as f16 and f32.
const char* random_float(Draw& draw);
// Page size, layers, order, holes: what does not depend on the rows.
void add_pages(Draw& draw, const RandomLengths& lengths, nlohmann::json& cache);
// Rows of heads of any dtype, scaled in any way; a scale is a whole row's or one of `granularities` columns'.
nlohmann::json random_head_cache(Draw& draw, const RandomLengths& lengths, std::int64_t head_dim,
                                 std::initializer_list<int> granularities);
// Latent rows of any format.
nlohmann::json random_latent_cache(Draw& draw, const RandomLengths& lengths);
// fp8 rows of either kind get powers of two as scales, in a plane of their own or behind the rows of their page.
void use_power_scales(Draw& draw, nlohmann::json& cache);
// Rows of heads of an even width become int4, in any form.
void use_int4(Draw& draw, nlohmann::json& cache);
// "key_intervals" of any kind.
std::string random_key_intervals(Draw& draw);
// A mask of up to four parts; sets blind_tokens where a tree or key intervals are among them.
void add_mask(Draw& draw, const RandomLengths& lengths, nlohmann::json& object);

// The generator of each op; what it leaves out (name, op, tags) random_case adds.
nlohmann::json random_compress_keys(Draw& draw);
nlohmann::json random_select_blocks(Draw& draw);
nlohmann::json random_copy_pages(Draw& draw);
nlohmann::json random_flash_attention(Draw& draw);
nlohmann::json random_fused_qkv_matmul(Draw& draw);
nlohmann::json random_linear(Draw& draw);
nlohmann::json random_merge_states(Draw& draw);
nlohmann::json random_mla_decode(Draw& draw);
nlohmann::json random_mla_indexer(Draw& draw);
nlohmann::json random_mla_prefill(Draw& draw);
nlohmann::json random_mla_prefill_plan(Draw& draw);
nlohmann::json random_quantize_fp8(Draw& draw);
nlohmann::json random_quantize_index_queries(Draw& draw);
nlohmann::json random_remap_sparse_indices(Draw& draw);
nlohmann::json random_rms_norm(Draw& draw);
nlohmann::json random_rms_norm_value(Draw& draw);
nlohmann::json random_rope(Draw& draw);
nlohmann::json random_row_offsets(Draw& draw);
nlohmann::json random_sparse_mla(Draw& draw);
nlohmann::json random_store(Draw& draw);
nlohmann::json random_store_index_keys(Draw& draw);
nlohmann::json random_store_scales(Draw& draw);

// Every op that cases name, in the order of tools::known_ops().
nlohmann::json random_case(const std::string& op, Draw& draw);

// The draw of problem `index` under a seed.
inline Draw draw_of(std::uint64_t seed, std::int64_t index, Extent extent) {
  return Draw(seed * 1'000'003 + static_cast<std::uint64_t>(index), extent);
}

}  // namespace quire::test
