// SPDX-License-Identifier: Apache-2.0
// The cache of a case as data, and its memory.
//   "cache": {"dtype": "bf16", "kv_heads": 2, "head_dim": 64, "page_size": 16, "layers": 3,
//   "layer": 2,
//             "page_order": "shuffled", "unassigned": [[0, 1]]}
//   "cache": {"row_format": "mla_fp8_block", "latent": 512, "rope": 64, "page_size": 64}
//   "cache": {"row_format": "int4", "zeros": true, "granularity": 64, "kv_heads": 2, "head_dim": 128,
//             "page_size": 16}
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "quire/paged_kv_cache.h"
#include "tools/case/fields.h"
#include "tools/case/lengths.h"
#include "tools/case/memory.h"

namespace quire::tools {

enum class PageOrder : std::uint8_t { identity, reversed, shuffled };
// What stands in all that an op must not read.
enum class PoisonNumber : std::uint8_t { nan, infinity };
// page_end: behind the rows of their page, in the same memory.
enum class ScaleKind : std::uint8_t { dynamic, fixed, own_table, page_end };
// Which rows hold data at the start. The others are poison.
enum class Contents : std::uint8_t { cached, cached_and_new };

struct CacheSpec {
  RowFormat row_format = RowFormat::uniform(DType::bf16, 64);
  std::int64_t kv_heads = 1;
  bool is_mla = false;
  std::int64_t latent = 0;  // MLA: columns before the rope part
  std::int64_t page_size = 16;
  std::int64_t layers = 2;
  std::int64_t layer = 1;
  PageOrder page_order = PageOrder::shuffled;
  bool is_split = false;     // K and V are two tensors
  bool heads_first = false;  // memory order [.., heads, page_size, row] (HND)
  ScaleKind scale_kind = ScaleKind::dynamic;
  std::int64_t spare_pages = 3;    // pages that belong to nobody
  std::int64_t spare_columns = 2;  // table columns past the longest sequence
  std::vector<std::pair<std::int64_t, std::int64_t>>
      unassigned{};  // (sequence, table column), sorted
  bool poison = true;
  PoisonNumber poison_number = PoisonNumber::nan;
  // (sequence, token): keys whose V row, in MLA whose row, holds NaN, or infinity. Every query of the sequence
  // must see them: what becomes of one that does not is open (docs/numerics.md).
  std::vector<std::pair<std::int64_t, std::int64_t>> nan_values{};
  std::vector<std::pair<std::int64_t, std::int64_t>> infinite_values{};

  std::int64_t width() const { return row_format.width(); }
  std::int64_t row_bytes() const { return row_format.row_bytes; }
  // K and V bytes of one token in one layer, scales included.
  std::int64_t token_bytes() const;
  // Of all sequences in all layers.
  double total_bytes(const Lengths& lengths) const;
  bool is_assigned(std::int64_t sequence, std::int64_t token) const;

  // The same logical cache without paging: one page per sequence in order, one layer, no poison.
  // Where the pages themselves are part of the problem (holes, chunks cut at pages) the page size
  // stays.
  CacheSpec contiguous_twin(const Lengths& lengths, bool keep_page_size = false) const;
};

CacheSpec read_cache(const Fields& fields, const Lengths& lengths, bool is_mla,
                     const std::string& key = "cache");

PagedKVCache build_cache(Memory& memory, const CacheSpec& spec, const Lengths& lengths,
                         Contents contents, std::uint64_t seed, const std::string& name = "cache");

// Makes the cache's lengths those of the tokens that its rows stand for.
void count_tokens(PagedKVCache& cache, const Lengths& tokens);

// u32 [batch + 1].
TensorView build_row_offsets(Memory& memory, const Lengths& lengths);
// u32 [batch], where "keys" were given.
std::optional<TensorView> build_key_lengths(Memory& memory, const Lengths& lengths);

}  // namespace quire::tools
