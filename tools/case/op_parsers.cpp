// SPDX-License-Identifier: Apache-2.0
#include "tools/case/op_parsers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <string_view>

namespace quire::tools {
namespace {

struct OpParser {
  std::string_view op;
  std::unique_ptr<OpCase> (*parse)(const Fields& fields);
};

constexpr std::array kParsers{
    OpParser{"flash_attention", parse_flash_attention},
    OpParser{"fused_qkv_matmul", parse_fused_qkv_matmul},
    OpParser{"mla_prefill", parse_mla_prefill},
    OpParser{"mla_prefill_plan", parse_mla_prefill_plan},
    OpParser{"mla_decode", parse_mla_decode},
    OpParser{"mla_indexer", parse_mla_indexer},
    OpParser{"sparse_mla", parse_sparse_mla},
    OpParser{"rope", parse_rope},
    OpParser{"rms_norm_key", parse_rms_norm_key},
    OpParser{"rms_norm_value", parse_rms_norm_value},
    OpParser{"store", parse_store},
    OpParser{"store_scales", parse_store_scales},
    OpParser{"copy_pages", parse_copy_pages},
    OpParser{"merge_states", parse_merge_states},
    OpParser{"quantize_fp8", parse_quantize_fp8},
    OpParser{"store_index_keys", parse_store_index_keys},
    OpParser{"quantize_index_queries", parse_quantize_index_queries},
    OpParser{"row_offsets", parse_row_offsets},
    OpParser{"remap_sparse_indices", parse_remap_sparse_indices},
    OpParser{"linear", parse_linear},
    OpParser{"compress_keys", parse_compress_keys},
    OpParser{"select_blocks", parse_select_blocks},
};

}  // namespace

std::vector<std::string> known_ops() {
  std::vector<std::string> ops;
  for (const OpParser& parser : kParsers) ops.emplace_back(parser.op);
  return ops;
}

std::unique_ptr<OpCase> parse_op_case(const std::string& op, const Fields& fields) {
  for (const OpParser& parser : kParsers) {
    if (parser.op == op) return parser.parse(fields);
  }
  fields.fail("op", fmt::format("one of {}", fmt::join(known_ops(), ", ")));
}

}  // namespace quire::tools
