// SPDX-License-Identifier: Apache-2.0
#include "tools/case/case.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <new>
#include <set>

#include "quire/error.h"
#include "tools/case/random_stream.h"
#include "tools/text_file.h"

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
    where = fmt::format("{}: case '{}'", file, shorten(object["name"].get<std::string>()));
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
  try {
    parsed.problem = parse_op_case(parsed.op, fields);
  } catch (const Error& refused) {
    fields.fail(refused.what());  // a cache row or a mask that the library does not have
  }
  fields.finish();
  return parsed;
}

std::vector<Case> load_file(const std::filesystem::path& path) {
  std::string text;
  try {
    text = read_text_file(path.string(), kMaxFileBytes);
  } catch (const std::runtime_error& problem) {
    throw CaseError(problem.what());
  }
  return parse_case_text(text, path.filename().string());
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

Built Case::build(Layout layout, std::uint64_t draw, std::int64_t max_bytes) const {
  try {
    return problem->build(layout, seed_of(name, draw), max_bytes);
  } catch (const MemoryError& too_large) {
    throw CaseError(fmt::format("{}: case '{}': {}", file, shorten(name), too_large.what()));
  } catch (const std::bad_alloc&) {
    throw CaseError(fmt::format("{}: case '{}': there is not enough memory", file, shorten(name)));
  }
}

Peer Case::label() const {
  return peer.value_or(Peer{.op = op, .shape = name});
}

std::vector<Case> parse_cases(const nlohmann::json& document, const std::string& file) {
  if (!document.is_array()) throw CaseError(fmt::format("{}: must be a list of cases", file));
  if (document.size() > static_cast<std::size_t>(kMaxCases)) {
    throw CaseError(fmt::format("{}: must have at most {} cases", file, kMaxCases));
  }
  std::vector<Case> cases;
  for (const nlohmann::json& object : document) {
    cases.push_back(parse_case(object, file, cases.size()));
  }
  return cases;
}

std::vector<Case> parse_case_text(std::string_view text, const std::string& file) {
  nlohmann::json document;
  try {
    document = parse_json(text, kMaxNesting);
  } catch (const std::runtime_error& problem) {
    throw CaseError(fmt::format("{}: {}", file, problem.what()));
  }
  return parse_cases(document, file);
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
    for (Case& parsed : load_file(path)) {
      const std::string& file = parsed.file;
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
