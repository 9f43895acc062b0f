// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "quire/element.h"
#include "quire/paged_kv_operand.h"
#include "reference/arithmetic.h"
#include "reference/index_rows.h"
#include "reference/quantize_fp8.h"
#include "reference/ragged.h"
#include "reference/tensor_row.h"

namespace quire::reference {
namespace {

constexpr DType kCode = DType::fp8_e4m3;

bool is_code_of(double code, double exact, double slack, double scale) {
  // An infinite number makes its row's scale infinite: what is finite becomes 0, the rest NaN.
  if (std::isinf(scale) && std::isfinite(exact)) return code == 0.0;
  if (std::isinf(scale)) return std::isnan(code);
  if (std::isnan(exact) || std::isnan(code)) return std::isnan(exact) && std::isnan(code);
  if (scale == 0.0) return code == 0.0;
  return code >= round_to(kCode, (exact - slack) / scale) &&
         code <= round_to(kCode, (exact + slack) / scale);
}

std::string fault_with_scale(std::span<const double> exact, const IndexRowCodes& row,
                             double scale) {
  const double wanted = scale * row.factor;
  constexpr double kSmallest = 0x1p-149;  // of f32: what rounding the scale alone may cost
  if (std::abs(row.scale - wanted) > kSumReach * std::abs(wanted) + kSmallest) {
    return fmt::format("scale {} is not {}", row.scale, wanted);
  }
  const double slack = kSumReach * largest_magnitude(exact);
  for (std::size_t column = 0; column < exact.size(); ++column) {
    if (is_code_of(row.codes[column], exact[column], slack, scale)) continue;
    return fmt::format("column {} is {}, which {} with scale {} does not give", column,
                       row.codes[column], exact[column], scale);
  }
  return "";
}

}  // namespace

std::string index_row_fault(std::span<const double> exact, const IndexRowCodes& row) {
  // Near a power of two, fp32 may see the amax on either side of it.
  const double amax = largest_magnitude(exact);
  std::string fault;
  for (const double bent : {amax, amax * (1.0 - kSumReach), amax * (1.0 + kSumReach)}) {
    const double scale = round_to(DType::f32, fp8_scale(bent, kCode, row.rounding));
    const std::string found = fault_with_scale(exact, row, scale);
    if (found.empty()) return "";
    if (fault.empty()) fault = found;
  }
  return fault;
}

std::string store_index_keys_fault(const StoreIndexKeysArgs& args) {
  const PagedKvOperand keys(args.cache.key(args.layer));
  const KvOperandRef rows = keys;
  const RowLayout& layout = rows.layout();
  const IndexRowRule rule = index_row_rule(args);
  for (const Token& token : tokens_of(args.row_offsets, args.cache)) {
    const RowAddress address = rows.row(token.sequence, 0, token.position);
    if (address.row == nullptr) continue;
    std::vector<double> codes;
    for (std::int32_t column = 0; column < layout.width(); ++column) {
      codes.push_back(layout.load_quantized(address, column));
    }
    const std::string fault = index_row_fault(
        rule.apply(load_row(args.x, token.index), token.position),
        {.codes = codes, .scale = layout.load_scale(address, 0), .rounding = args.scale_rounding});
    if (!fault.empty()) return fmt::format("key of token {}: {}", token.index, fault);
  }
  return "";
}

std::string quantize_index_queries_fault(const QuantizeIndexQueriesArgs& args) {
  const IndexRowRule rule = index_row_rule(args);
  for (const Token& token : tokens_of(args.row_offsets, args.cache)) {
    for (std::int64_t head = 0; head < args.q.shape[1]; ++head) {
      const double weight = args.weights ? args.weights->load({token.index, head}) : 1.0;
      const std::vector<double> codes = load_row(args.out, token.index, head);
      const std::string fault =
          index_row_fault(rule.apply(load_row(args.q, token.index, head), token.position),
                          {.codes = codes,
                           .scale = args.q_scale.load({token.index, head}),
                           .factor = weight * args.factor,
                           .rounding = args.scale_rounding});
      if (!fault.empty()) return fmt::format("token {}, head {}: {}", token.index, head, fault);
    }
  }
  return "";
}

}  // namespace quire::reference
