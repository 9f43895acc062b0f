// SPDX-License-Identifier: Apache-2.0
// A scheduled step as the tensors that the ops take.
#pragma once

#include <cstdint>
#include <vector>

#include "quire/page_manager.h"
#include "tools/demo/scheduler.h"
#include "tools/demo/tensor.h"

namespace quire::tools::demo {

// What the page manager writes and the ops read: a row for each sequence of a step. One for all
// steps of a run.
class BatchTables {
 public:
  // `columns`: one more than any sequence has pages, which must never be read as a page.
  BatchTables(PageManager& pages, std::int64_t rows, std::int64_t columns);

  // Sequence i of the step has row i from now on.
  void place(const Step& step);
  TensorView page_table(std::int64_t rows) const;     // u32 [rows, columns]
  TensorView cache_lengths(std::int64_t rows) const;  // u32 [rows]

 private:
  PageManager& pages_;
  Tensor page_table_;
  Tensor cache_lengths_;
};

struct Batch {
  // The step's sequences have their rows.
  Batch(const Step& step, const BatchTables& tables);

  std::int64_t num_tokens() const { return static_cast<std::int64_t>(tokens.size()); }

  std::vector<TokenId> tokens;          // of all sequences
  std::vector<std::int64_t> last_rows;  // [batch]: row of each sequence's last new token
  std::int64_t max_new_tokens = 0;
  bool shares_prefix = false;  // some sequence has pages that others computed
  Tensor row_offsets;          // u32 [batch + 1]
  TensorView cache_lengths;    // u32 [batch]
  TensorView page_table;       // u32 [batch, max_pages], kNoPage where there is none
  // The same table in two halves: the shared pages alone, and all the others. What belongs to the
  // other half is unassigned, and so not attended to.
  Tensor prefix_table;
  Tensor suffix_table;
  Tensor copies;  // u32 [count, 2]: pages to be copied before anything else, source and target
};

}  // namespace quire::tools::demo
