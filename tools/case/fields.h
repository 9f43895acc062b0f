// SPDX-License-Identifier: Apache-2.0
// One JSON object of a case file, read key by key. Whatever is wrong is a CaseError that names
// file, case and key:
//   flash_attention.json: case 'gqa_4': key 'cache.page_size' must be an integer >= 1, got 0
// Integers have an upper limit, too (limits.h).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "quire/dtype.h"

namespace quire::tools {

class CaseError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Fields {
 public:
  // `where` starts every message; `prefix` stands before a key ("cache.").
  Fields(const nlohmann::json& object, std::string where, std::string prefix = "");

  bool has(const std::string& key) const { return object_->contains(key); }

  // At most kMaxSize.
  std::int64_t integer(const std::string& key, std::int64_t min) const;
  std::int64_t integer(const std::string& key, std::int64_t min, std::int64_t fallback) const;
  std::int64_t integer_between(const std::string& key, std::int64_t min, std::int64_t max) const;
  double number(const std::string& key, double fallback) const;
  bool flag(const std::string& key, bool fallback) const;
  std::string text(const std::string& key) const;
  std::string text(const std::string& key, const std::string& fallback) const;
  std::string choice(const std::string& key, std::initializer_list<std::string_view> allowed,
                     const std::string& fallback) const;
  DType dtype(const std::string& key, std::initializer_list<DType> allowed,
              std::optional<DType> fallback) const;
  // A list of them, each inside the range; absent: none.
  std::vector<std::int64_t> integers(const std::string& key, std::int64_t min,
                                     std::int64_t max) const;
  std::vector<std::string> texts(const std::string& key) const;  // absent: none
  // [[0, 1], [2, 3]], each 0 … kMaxId; absent: none.
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs(const std::string& key) const;
  Fields object(const std::string& key) const;
  std::vector<Fields> objects(const std::string& key) const;  // a list of them; absent: none
  const nlohmann::json& raw(const std::string& key) const;

  // Every key has been asked for; a key that nobody reads is a mistake in the file.
  void finish() const;

  [[noreturn]] void fail(const std::string& key, const std::string& expected) const;
  // For rules between keys: "<where>: <message>".
  [[noreturn]] void fail(const std::string& message) const;
  const std::string& where() const { return where_; }

 private:
  const nlohmann::json* find(const std::string& key) const;  // null: absent
  // The same, and a list that is not too long.
  const nlohmann::json* list(const std::string& key, const std::string& what) const;

  const nlohmann::json* object_;
  std::string where_;
  std::string prefix_;
  mutable std::set<std::string> read_;
};

}  // namespace quire::tools
