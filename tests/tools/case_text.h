// SPDX-License-Identifier: Apache-2.0
// Cases written inside a test.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tools/case/case.h"

namespace quire::tools {

// A small flash_attention case that parses; tests change one thing about it.
inline nlohmann::json small_attention() {
  return nlohmann::json::parse(R"({
    "name": "small", "op": "flash_attention", "tags": ["tiny"],
    "lengths": {"new": [2, 0, 3], "cached": [5, 3, 0]}, "heads": 4,
    "cache": {"kv_heads": 2, "head_dim": 16, "page_size": 4, "layers": 2, "layer": 1}
  })");
}

// Rows of an fp8 cache with scales, written by the op.
inline nlohmann::json small_store() {
  return nlohmann::json::parse(R"({
    "name": "small_store", "op": "store", "tags": ["tiny"],
    "lengths": {"new": [2, 3], "cached": [5, 0]},
    "cache": {"kv_heads": 2, "head_dim": 16, "page_size": 4, "dtype": "fp8_e4m3",
              "row_format": "scaled", "granularity": 8}
  })");
}

inline Case parse_one(const nlohmann::json& object) {
  return parse_cases(nlohmann::json::array({object}), "test.json").front();
}

// The message of the CaseError, or "" if there was none.
inline std::string parse_error(const nlohmann::json& object) {
  try {
    parse_one(object);
  } catch (const CaseError& error) {
    return error.what();
  }
  return "";
}

}  // namespace quire::tools
