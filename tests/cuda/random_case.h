// SPDX-License-Identifier: Apache-2.0
// Random problems of the projection and of the attention ops as cases: the objects that cases/*.json hold, so that they
// are built, poisoned, run, replayed and judged exactly as those are. A case follows from its op,
// seed and index alone.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

namespace quire::test {

class RandomChoice {
 public:
  explicit RandomChoice(std::uint64_t seed) : engine_(seed) {}

  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(bound));
  }
  bool one_in(std::int64_t n) { return below(n) == 0; }
  template <typename T> T pick(std::initializer_list<T> list) {
    return list.begin()[below(static_cast<std::int64_t>(list.size()))];
  }

 private:
  std::mt19937_64 engine_;
};

struct RandomLengths {
  std::vector<std::int64_t> added;
  std::vector<std::int64_t> cached;

  std::int64_t tokens() const;
  nlohmann::json json() const { return {{"new", added}, {"cached", cached}}; }
};

// Sequences of nothing, of one token, of tile borders and of more than a tile.
RandomLengths random_lengths(RandomChoice& choice, std::int64_t max_new, std::int64_t max_cached);

// bf16 twice as often as f16 and f32.
const char* random_float(RandomChoice& choice);
// Page size, layers, order, holes: what does not depend on the rows.
void add_pages(RandomChoice& choice, const RandomLengths& lengths, nlohmann::json& cache);
// Rows of heads of any dtype, scaled in any way; a scale is a whole row's or one of `granularities` columns'.
nlohmann::json random_head_cache(RandomChoice& choice, const RandomLengths& lengths,
                                 std::int64_t head_dim, std::initializer_list<int> granularities);
// Latent rows of any format.
nlohmann::json random_latent_cache(RandomChoice& choice, const RandomLengths& lengths);
// A mask of up to four parts; sets blind_tokens where a tree is among them.
void add_mask(RandomChoice& choice, const RandomLengths& lengths, nlohmann::json& object);

nlohmann::json random_flash_attention(RandomChoice& choice);
nlohmann::json random_fused_qkv_matmul(RandomChoice& choice);

// fused_qkv_matmul, flash_attention, mla_decode, mla_prefill, mla_prefill_plan, mla_indexer or sparse_mla.
nlohmann::json random_case(const std::string& op, std::uint64_t seed, std::int64_t index);

}  // namespace quire::test
