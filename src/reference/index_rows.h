// SPDX-License-Identifier: Apache-2.0
// store_index_keys and quantize_index_queries: rows of the indexer, from raw to fp8.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quire/ops/quantize_index_queries.h"
#include "quire/ops/store_index_keys.h"
#include "reference/arithmetic.h"

namespace quire::reference {

// What happens to a row before it is quantized; the meanings are those of the ops.
struct IndexRowRule {
  std::optional<TensorView> norm_weight{};
  std::optional<TensorView> norm_bias{};
  double epsilon = 0.0;
  std::optional<TensorView> freqs_cis{};
  bool interleaved = false;
  bool hadamard = false;

  // The norm is exact in any arithmetic: store_index_keys, which alone has one, is judged by store_index_keys_fault.
  std::vector<double> apply(std::vector<double> row, std::int64_t position,
                            Arithmetic arithmetic = {}) const;
};
IndexRowRule index_row_rule(const StoreIndexKeysArgs& args);
IndexRowRule index_row_rule(const QuantizeIndexQueriesArgs& args);

// row · H · size^-½ by the definition, entry by entry.
std::vector<double> hadamard(std::span<const double> row, Arithmetic arithmetic = {});

void store_index_keys(const StoreIndexKeysArgs& args);
void quantize_index_queries(const QuantizeIndexQueriesArgs& args, Arithmetic arithmetic = {});

// One quantized row as an op left it.
struct IndexRowCodes {
  std::span<const double> codes;
  double scale;         // times `factor`, as stored
  double factor = 1.0;  // what the op multiplied the row's own scale with
  ScaleRounding rounding = ScaleRounding::exact;
};

// Empty if an evaluation in fp32 may turn the exact values of a row into these codes: the scale, and
// every code, is that of a value within 2^-16 of the row's largest from the exact one. A bf16
// rounding on the way is 2^-9 of a value and does not pass.
std::string index_row_fault(std::span<const double> exact, const IndexRowCodes& row);

// The first row of a finished op that has a fault; empty: none. Rows without a page are not judged.
std::string store_index_keys_fault(const StoreIndexKeysArgs& args);
std::string quantize_index_queries_fault(const QuantizeIndexQueriesArgs& args);

}  // namespace quire::reference
