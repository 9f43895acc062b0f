// SPDX-License-Identifier: Apache-2.0
// A case: one problem of one op as data, with its cost and, where somebody measured it, the peers'
// name for it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/case/built.h"
#include "tools/case/fields.h"

namespace quire::tools {

// What an op multiplies at best: it decides which of a machine's product instructions is its
// ceiling.
enum class Products : std::uint8_t { f32, bf16, int8 };

std::string_view name(Products products);
// fp8 numbers are exact in bf16; f16 numbers are not, and have no matrix instruction of their own on
// the processors of this library.
Products products_of(DType dtype);

// The parameters of one op's case. Each build_<op>.cpp has one.
class OpCase {
 public:
  virtual ~OpCase() = default;

  virtual Built build(Layout layout, std::uint64_t seed, std::int64_t max_bytes) const = 0;
  // Unmasked work only.
  virtual double flops() const = 0;
  // K/V or weight bytes, read once; for ops that only move data, all bytes read and written.
  virtual double bytes() const = 0;
  // Whether those are all bytes read and written, so that a plain copy of as many is what the op can be held against.
  virtual bool only_moves_data() const { return false; }
  virtual Products products() const { return Products::f32; }
  // Rough size of the memory that build() allocates.
  virtual double footprint() const { return bytes(); }
};

// A row of recorded measurements, by its strings there.
struct Peer {
  std::string op;
  std::string shape;

  bool operator==(const Peer&) const = default;
};

struct Case {
  std::string name;
  std::string op;
  std::string file;
  std::vector<std::string> tags;   // tiny, edge, model
  std::optional<Peer> peer{};      // the very same work
  std::vector<Peer> peer_parts{};  // rows that each time one part of it; together they are the work
  std::string note;
  std::shared_ptr<const OpCase> problem;

  bool has_tag(const std::string& tag) const;
  // draw: other numbers for the same problem; 0 are the case's own. A case that needs more than max_bytes of host
  // memory throws CaseError and names the tensor.
  Built build(Layout layout, std::uint64_t draw = 0,
              std::int64_t max_bytes = max_case_bytes()) const;
  // The strings that a row of measurements carries: the peer's where there is one.
  Peer label() const;
};

// Every *.json of a folder, file by file in alphabetic order. Throws CaseError.
std::vector<Case> load_cases(const std::string& folder);
// Any bytes at all: cases, or CaseError. `file` starts its messages.
std::vector<Case> parse_case_text(std::string_view text, const std::string& file);
std::vector<Case> parse_cases(const nlohmann::json& document, const std::string& file);

// Cases whose name equals or starts with one of the patterns, or whose op or file does. A pattern
// that finds nothing throws CaseError.
std::vector<Case> select_cases(const std::vector<Case>& cases,
                               const std::vector<std::string>& patterns);

// Ops that cases may name, and their parsers.
std::unique_ptr<OpCase> parse_op_case(const std::string& op, const Fields& fields);
std::vector<std::string> known_ops();

}  // namespace quire::tools
