// SPDX-License-Identifier: Apache-2.0
#include "tools/case/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace quire::tools {

Fields::Fields(const nlohmann::json& object, std::string where, std::string prefix)
    : object_(&object), where_(std::move(where)), prefix_(std::move(prefix)) {
  if (!object.is_object()) {
    const std::string what = prefix_.empty() ? "a case" : "key '" + prefix_ + "'";
    throw CaseError(fmt::format("{}: {} must be an object, got {}", where_, what, object.dump()));
  }
}

const nlohmann::json* Fields::find(const std::string& key) const {
  read_.insert(key);
  const auto found = object_->find(key);
  return found == object_->end() ? nullptr : &*found;
}

void Fields::fail(const std::string& key, const std::string& expected) const {
  const auto found = object_->find(key);
  const std::string actual = found == object_->end() ? "nothing" : found->dump();
  throw CaseError(
      fmt::format("{}: key '{}{}' must be {}, got {}", where_, prefix_, key, expected, actual));
}

void Fields::fail(const std::string& message) const {
  throw CaseError(fmt::format("{}: {}", where_, message));
}

std::int64_t Fields::integer(const std::string& key, std::int64_t min) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr || !value->is_number_integer() || value->get<std::int64_t>() < min) {
    fail(key, fmt::format("an integer >= {}", min));
  }
  return value->get<std::int64_t>();
}

std::int64_t Fields::integer(const std::string& key, std::int64_t min,
                             std::int64_t fallback) const {
  return find(key) == nullptr ? fallback : integer(key, min);
}

double Fields::number(const std::string& key, double fallback) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_number()) fail(key, "a number");
  return value->get<double>();
}

bool Fields::flag(const std::string& key, bool fallback) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) fail(key, "true or false");
  return value->get<bool>();
}

std::string Fields::text(const std::string& key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr || !value->is_string() || value->get<std::string>().empty()) {
    fail(key, "a text");
  }
  return value->get<std::string>();
}

std::string Fields::text(const std::string& key, const std::string& fallback) const {
  return find(key) == nullptr ? fallback : text(key);
}

std::string Fields::choice(const std::string& key, std::initializer_list<std::string_view> allowed,
                           const std::string& fallback) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_string() ||
      std::find(allowed.begin(), allowed.end(), value->get<std::string>()) == allowed.end()) {
    fail(key, fmt::format("one of {}", fmt::join(allowed, ", ")));
  }
  return value->get<std::string>();
}

DType Fields::dtype(const std::string& key, std::initializer_list<DType> allowed,
                    std::optional<DType> fallback) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr && fallback.has_value()) return *fallback;
  if (value != nullptr && value->is_string()) {
    const std::optional<DType> dtype = dtype_from_name(value->get<std::string>());
    if (dtype.has_value() && std::find(allowed.begin(), allowed.end(), *dtype) != allowed.end()) {
      return *dtype;
    }
  }
  std::vector<std::string_view> names;
  for (const DType dtype : allowed) names.push_back(name(dtype));
  fail(key, fmt::format("one of {}", fmt::join(names, ", ")));
}

std::vector<std::int64_t> Fields::integers(const std::string& key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return {};
  const bool right = value->is_array() && std::all_of(value->begin(), value->end(), [](auto& v) {
                       return v.is_number_integer();
                     });
  if (!right) fail(key, "a list of integers");
  return value->get<std::vector<std::int64_t>>();
}

std::vector<std::string> Fields::texts(const std::string& key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return {};
  const bool right = value->is_array() && std::all_of(value->begin(), value->end(),
                                                      [](auto& v) { return v.is_string(); });
  if (!right) fail(key, "a list of texts");
  return value->get<std::vector<std::string>>();
}

std::vector<std::pair<std::int64_t, std::int64_t>> Fields::pairs(const std::string& key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return {};
  if (!value->is_array()) fail(key, "a list of pairs of integers");
  std::vector<std::pair<std::int64_t, std::int64_t>> result;
  for (const nlohmann::json& pair : *value) {
    const bool right = pair.is_array() && pair.size() == 2 && pair[0].is_number_integer() &&
                       pair[1].is_number_integer();
    if (!right) fail(key, "a list of pairs of integers");
    result.emplace_back(pair[0].get<std::int64_t>(), pair[1].get<std::int64_t>());
  }
  return result;
}

Fields Fields::object(const std::string& key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr || !value->is_object()) fail(key, "an object");
  return {*value, where_, prefix_ + key + "."};
}

std::vector<Fields> Fields::objects(const std::string& key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return {};
  if (!value->is_array()) fail(key, "a list of objects");
  std::vector<Fields> result;
  for (const nlohmann::json& entry : *value)
    result.emplace_back(entry, where_, prefix_ + key + ".");
  return result;
}

const nlohmann::json& Fields::raw(const std::string& key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) fail(key, "given");
  return *value;
}

void Fields::finish() const {
  for (const auto& [key, value] : object_->items()) {
    if (!read_.contains(key)) {
      throw CaseError(fmt::format("{}: key '{}{}' is not known here", where_, prefix_, key));
    }
  }
}

}  // namespace quire::tools
