// SPDX-License-Identifier: Apache-2.0
// A small model: attention blocks between an embedding and a greedy choice of the next token.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tools/demo/batch.h"
#include "tools/demo/page_pool.h"
#include "tools/demo/referee.h"

namespace quire::tools::demo {

// Tokens in, hidden states out, and back. Random, like all weights here.
class Vocabulary {
 public:
  Vocabulary(TokenId size, std::int64_t hidden, std::uint64_t seed);

  Matrix embed(std::span<const TokenId> tokens) const;
  // The likeliest token after each of the rows; the lowest id among equals.
  std::vector<TokenId> choose(const Matrix& hidden, std::span<const std::int64_t> rows) const;

 private:
  Matrix embedding_;   // [size, hidden]
  Matrix projection_;  // [size, hidden]
};

// NaN would pass as agreement if op and oracle both read a page that was poisoned too early.
void require_finite(const Matrix& hidden, Referee& referee);

// Cosine and sine, interleaved, f32 [max_positions, rope_dim].
Tensor make_freqs_cis(std::int64_t max_positions, std::int64_t rope_dim);

// The batch's copies, in one pool.
void copy_pages_in(const PagePool& pool, const Batch& batch, Referee& referee);

class Stack {
 public:
  virtual ~Stack() = default;

  virtual std::string name() const = 0;
  virtual std::vector<std::string> describe() const = 0;  // one line per layer
  // One forward pass; the token after the last row of each sequence.
  virtual std::vector<TokenId> run(const Batch& batch, Referee& referee) = 0;
  // A page has another owner now: its memory is filled with NaN.
  virtual void poison(PageId page) = 0;
  // Whole pages, in every layer, before the pass.
  virtual void copy_pages(const Batch& batch, Referee& referee) const = 0;
  virtual std::vector<std::string> notes() const { return {}; }  // for the end of the report
};

}  // namespace quire::tools::demo
