// SPDX-License-Identifier: Apache-2.0
#include "tools/case/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tools/case/limits.h"
#include "tools/text_file.h"

namespace quire::tools {
namespace {

// A value for a message: ASCII, and not the whole of a long list.
std::string describe(const nlohmann::json& value) {
  return shorten(
      value.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace));
}

bool is_integer_between(const nlohmann::json& value, std::int64_t min, std::int64_t max) {
  if (!value.is_number_integer()) return false;
  // Numbers past the largest int64 are held unsigned, and would wrap around.
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number > static_cast<std::uint64_t>(max)) return false;
  }
  return value.get<std::int64_t>() >= min && value.get<std::int64_t>() <= max;
}

std::string describe_range(std::int64_t min, std::int64_t max) {
  return max == kMaxSize ? fmt::format(">= {}", min) : fmt::format("from {} to {}", min, max);
}

}  // namespace

Fields::Fields(const nlohmann::json& object, std::string where, std::string prefix)
    : object_(&object), where_(std::move(where)), prefix_(std::move(prefix)) {
  if (!object.is_object()) {
    const std::string what = prefix_.empty() ? "a case" : "key '" + prefix_ + "'";
    throw CaseError(
        fmt::format("{}: {} must be an object, got {}", where_, what, describe(object)));
  }
}

const nlohmann::json* Fields::find(const std::string& key) const {
  read_.insert(key);
  const auto found = object_->find(key);
  return found == object_->end() ? nullptr : &*found;
}

const nlohmann::json* Fields::list(const std::string& key, const std::string& what) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) fail(key, "a list of " + what);
  if (value->size() > static_cast<std::size_t>(kMaxListEntries)) {
    fail(key, fmt::format("a list of at most {} {}", kMaxListEntries, what));
  }
  return value;
}

void Fields::fail(const std::string& key, const std::string& expected) const {
  const auto found = object_->find(key);
  const std::string actual = found == object_->end() ? "nothing" : describe(*found);
  throw CaseError(
      fmt::format("{}: key '{}{}' must be {}, got {}", where_, prefix_, key, expected, actual));
}

void Fields::fail(const std::string& message) const {
  throw CaseError(fmt::format("{}: {}", where_, message));
}

std::int64_t Fields::integer(const std::string& key, std::int64_t min) const {
  return integer_between(key, min, kMaxSize);
}

std::int64_t Fields::integer_between(const std::string& key, std::int64_t min,
                                     std::int64_t max) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr || !is_integer_between(*value, min, max)) {
    const bool is_too_large =
        value != nullptr && value->is_number() && value->get<double>() > static_cast<double>(max);
    fail(key, is_too_large ? fmt::format("an integer <= {}", max)
                           : fmt::format("an integer >= {}", min));
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

std::vector<std::int64_t> Fields::integers(const std::string& key, std::int64_t min,
                                           std::int64_t max) const {
  const nlohmann::json* value = list(key, "integers");
  if (value == nullptr) return {};
  const bool right = std::all_of(value->begin(), value->end(), [&](const nlohmann::json& entry) {
    return is_integer_between(entry, min, max);
  });
  if (!right) fail(key, "a list of integers " + describe_range(min, max));
  return value->get<std::vector<std::int64_t>>();
}

std::vector<std::string> Fields::texts(const std::string& key) const {
  const nlohmann::json* value = list(key, "texts");
  if (value == nullptr) return {};
  const bool right =
      std::all_of(value->begin(), value->end(), [](auto& v) { return v.is_string(); });
  if (!right) fail(key, "a list of texts");
  return value->get<std::vector<std::string>>();
}

std::vector<std::pair<std::int64_t, std::int64_t>> Fields::pairs(const std::string& key) const {
  const nlohmann::json* value = list(key, "pairs of integers");
  if (value == nullptr) return {};
  std::vector<std::pair<std::int64_t, std::int64_t>> result;
  for (const nlohmann::json& pair : *value) {
    const bool right = pair.is_array() && pair.size() == 2 &&
                       is_integer_between(pair[0], 0, kMaxId) &&
                       is_integer_between(pair[1], 0, kMaxId);
    if (!right) fail(key, "a list of pairs of integers " + describe_range(0, kMaxId));
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
  const nlohmann::json* value = list(key, "objects");
  if (value == nullptr) return {};
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
