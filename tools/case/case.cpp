// SPDX-License-Identifier: Apache-2.0
#include "tools/case/case.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "tools/case/random_stream.h"

namespace quire::tools {
namespace {

Peer read_peer(const Fields& fields) {
  Peer peer{.op = fields.text("op"), .shape = fields.text("shape")};
  fields.finish();
  return peer;
}

std::vector<std::string> read_tags(const Fields& fields) {
  std::vector<std::string> tags = fields.texts("tags");
  const std::set<std::string> known{"tiny", "edge", "model"};
  const bool right = !tags.empty() && std::all_of(tags.begin(), tags.end(), [&](const auto& tag) {
    return known.contains(tag);
  });
  if (!right) fields.fail("tags", "a list of tiny, edge, model");
  return tags;
}

Case parse_case(const nlohmann::json& object, const std::string& file, std::size_t number) {
  std::string where = fmt::format("{}: case {}", file, number);
  if (object.is_object() && object.contains("name") && object["name"].is_string()) {
    where = fmt::format("{}: case '{}'", file, object["name"].get<std::string>());
  }
  const Fields fields(object, where);
  Case parsed;
  parsed.file = file;
  parsed.name = fields.text("name");
  parsed.op = fields.text("op");
  parsed.tags = read_tags(fields);
  if (fields.has("peer")) parsed.peer = read_peer(fields.object("peer"));
  for (const Fields& part : fields.objects("peer_parts"))
    parsed.peer_parts.push_back(read_peer(part));
  parsed.note = fields.text("note", "");
  parsed.problem = parse_op_case(parsed.op, fields);
  fields.finish();
  return parsed;
}

bool matches(const Case& candidate, const std::string& pattern) {
  return candidate.name.starts_with(pattern) || candidate.op == pattern ||
         candidate.file == pattern || candidate.file == pattern + ".json";
}

}  // namespace

std::string_view name(Products products) {
  return products == Products::int8 ? "int8" : products == Products::bf16 ? "bf16" : "f32";
}

Products products_of(DType dtype) {
  if (dtype == DType::i8) return Products::int8;
  return dtype == DType::bf16 || is_fp8(dtype) ? Products::bf16 : Products::f32;
}

bool Case::has_tag(const std::string& tag) const {
  return std::find(tags.begin(), tags.end(), tag) != tags.end();
}

Built Case::build(Layout layout, std::uint64_t draw) const {
  return problem->build(layout, seed_of(name, draw));
}

Peer Case::label() const {
  return peer.value_or(Peer{.op = op, .shape = name});
}

std::vector<Case> parse_cases(const nlohmann::json& document, const std::string& file) {
  if (!document.is_array()) throw CaseError(fmt::format("{}: must be a list of cases", file));
  std::vector<Case> cases;
  for (const nlohmann::json& object : document) {
    cases.push_back(parse_case(object, file, cases.size()));
  }
  return cases;
}

std::vector<Case> load_cases(const std::string& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  if (error || files.empty()) {
    throw CaseError(fmt::format("{}: {}; --cases names the folder of the case files", folder,
                                error ? error.message() : "no case files (*.json) here"));
  }
  std::sort(files.begin(), files.end());

  std::vector<Case> cases;
  std::set<std::string> names;
  for (const std::filesystem::path& path : files) {
    const std::string file = path.filename().string();
    nlohmann::json document;
    try {
      document = nlohmann::json::parse(std::ifstream(path));
    } catch (const nlohmann::json::exception& problem) {
      throw CaseError(fmt::format("{}: {}", file, problem.what()));
    }
    for (Case& parsed : parse_cases(document, file)) {
      if (!names.insert(parsed.name).second) {
        throw CaseError(
            fmt::format("{}: case '{}': key 'name' is taken already", file, parsed.name));
      }
      cases.push_back(std::move(parsed));
    }
  }
  return cases;
}

std::vector<Case> select_cases(const std::vector<Case>& cases,
                               const std::vector<std::string>& patterns) {
  std::vector<Case> selected;
  std::set<std::string> found;
  for (const Case& candidate : cases) {
    bool chosen = false;
    for (const std::string& pattern : patterns) {
      if (!matches(candidate, pattern)) continue;
      found.insert(pattern);
      chosen = true;
    }
    if (chosen) selected.push_back(candidate);
  }
  for (const std::string& pattern : patterns) {
    if (!found.contains(pattern)) throw CaseError(fmt::format("no case is called '{}'", pattern));
  }
  return selected;
}

}  // namespace quire::tools
