// SPDX-License-Identifier: Apache-2.0
// The parser of every op's cases; each stands in build_<op>.cpp beside the code that builds the
// problem.
#pragma once

#include <memory>

#include "tools/case/case.h"

namespace quire::tools {

std::unique_ptr<OpCase> parse_flash_attention(const Fields& fields);
std::unique_ptr<OpCase> parse_fused_qkv_matmul(const Fields& fields);
std::unique_ptr<OpCase> parse_linear(const Fields& fields);
std::unique_ptr<OpCase> parse_mla_prefill(const Fields& fields);
std::unique_ptr<OpCase> parse_mla_prefill_plan(const Fields& fields);
std::unique_ptr<OpCase> parse_mla_decode(const Fields& fields);
std::unique_ptr<OpCase> parse_mla_indexer(const Fields& fields);
std::unique_ptr<OpCase> parse_sparse_mla(const Fields& fields);
std::unique_ptr<OpCase> parse_rope(const Fields& fields);
std::unique_ptr<OpCase> parse_rms_norm_key(const Fields& fields);
std::unique_ptr<OpCase> parse_rms_norm_value(const Fields& fields);
std::unique_ptr<OpCase> parse_store(const Fields& fields);
std::unique_ptr<OpCase> parse_store_scales(const Fields& fields);
std::unique_ptr<OpCase> parse_compress_keys(const Fields& fields);
std::unique_ptr<OpCase> parse_select_blocks(const Fields& fields);
std::unique_ptr<OpCase> parse_copy_pages(const Fields& fields);
std::unique_ptr<OpCase> parse_merge_states(const Fields& fields);
std::unique_ptr<OpCase> parse_quantize_fp8(const Fields& fields);
std::unique_ptr<OpCase> parse_store_index_keys(const Fields& fields);
std::unique_ptr<OpCase> parse_quantize_index_queries(const Fields& fields);
std::unique_ptr<OpCase> parse_row_offsets(const Fields& fields);
std::unique_ptr<OpCase> parse_remap_sparse_indices(const Fields& fields);

}  // namespace quire::tools
