// SPDX-License-Identifier: Apache-2.0
#include "fuzz/problems/random_case.h"

#include <fmt/format.h>

#include <array>
#include <stdexcept>
#include <string_view>

namespace quire::test {
namespace {

struct Generator {
  std::string_view op;
  nlohmann::json (*generate)(Draw& draw);
};

constexpr std::array kGenerators{
    Generator{"flash_attention", random_flash_attention},
    Generator{"fused_qkv_matmul", random_fused_qkv_matmul},
    Generator{"mla_prefill", random_mla_prefill},
    Generator{"mla_prefill_plan", random_mla_prefill_plan},
    Generator{"mla_decode", random_mla_decode},
    Generator{"mla_indexer", random_mla_indexer},
    Generator{"sparse_mla", random_sparse_mla},
    Generator{"rope", random_rope},
    Generator{"rms_norm_key", random_rms_norm},
    Generator{"rms_norm_value", random_rms_norm_value},
    Generator{"store", random_store},
    Generator{"store_scales", random_store_scales},
    Generator{"copy_pages", random_copy_pages},
    Generator{"merge_states", random_merge_states},
    Generator{"quantize_fp8", random_quantize_fp8},
    Generator{"store_index_keys", random_store_index_keys},
    Generator{"quantize_index_queries", random_quantize_index_queries},
    Generator{"row_offsets", random_row_offsets},
    Generator{"remap_sparse_indices", random_remap_sparse_indices},
    Generator{"linear", random_linear},
    Generator{"compress_keys", random_compress_keys},
    Generator{"select_blocks", random_select_blocks},
};

}  // namespace

nlohmann::json random_case(const std::string& op, Draw& draw) {
  for (const Generator& generator : kGenerators) {
    if (generator.op != op) continue;
    nlohmann::json object = generator.generate(draw);
    object["op"] = op;
    // The numbers follow from the name.
    object["name"] = fmt::format("{}/random_{:016x}", op, draw.bits());
    object["tags"] = nlohmann::json::array({"edge"});
    return object;
  }
  throw std::invalid_argument("no random cases of " + op);
}

}  // namespace quire::test
