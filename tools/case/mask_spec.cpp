// SPDX-License-Identifier: Apache-2.0
#include "tools/case/mask_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "quire/error.h"
#include "tools/case/key_intervals.h"
#include "tools/case/limits.h"
#include "tools/case/random_stream.h"

namespace quire::tools {
namespace {

struct Query {
  std::int64_t token;   // row of the bits
  std::int64_t cached;  // keys before the new ones
  std::int64_t local;
};

bool shows_branch(const TensorView& bits, const Query& query, std::int64_t key) {
  const std::int64_t column = key - query.cached;
  if (column < 0) return true;
  return column < bits.shape[1] &&
         bits.as<std::uint8_t>()[query.token * bits.strides[0] + column] != 0;
}

bool shows_interval(const Mask::Node& node, const Query& query, std::int64_t key) {
  const auto bound = [&](const TensorView& bounds) -> std::int64_t {
    return bounds.as<std::int32_t>()[query.token * bounds.strides[0]];
  };
  return key >= bound(node.begin) && key < bound(node.end);
}

bool shows(const Mask& mask, std::int32_t at, const Query& query, std::int64_t key) {
  const Mask::Node& node = mask.nodes()[static_cast<std::size_t>(at)];
  const std::int64_t position = query.cached + query.local;
  switch (node.kind) {
    case MaskKind::full:
      return true;
    case MaskKind::causal:
      return key <= position;
    case MaskKind::sliding_window:
      return key > position - node.size && key < position + node.size;
    case MaskKind::chunked:
      return key / node.size == position / node.size;
    case MaskKind::tree:
      return shows_branch(node.bits, query, key);
    case MaskKind::key_intervals:
      return shows_interval(node, query, key);
    case MaskKind::all_of:
      return shows(mask, node.left, query, key) && shows(mask, node.right, query, key);
    case MaskKind::any_of:
      return shows(mask, node.left, query, key) || shows(mask, node.right, query, key);
  }
  return false;
}

// Every token is visible to itself, and each earlier one with probability 1/2.
TensorView build_tree(Memory& memory, const MaskSpec& spec, const Lengths& lengths,
                      std::uint64_t seed) {
  const std::int64_t width = std::max<std::int64_t>(1, lengths.max_added());
  const TensorView bits = memory.allocate("tree", DType::u8, {lengths.tokens(), width});
  const std::uint64_t stream = seed_of("tree", seed);
  std::int64_t token = 0;
  for (const std::int64_t added : lengths.added) {
    for (std::int64_t i = 0; i < added; ++i, ++token) {
      const bool blind =
          std::binary_search(spec.blind_tokens.begin(), spec.blind_tokens.end(), token);
      for (std::int64_t j = 0; j < added; ++j) {
        const bool ancestor =
            j == i ||
            (j < i && integer_at(stream, static_cast<std::uint64_t>(token * width + j), 2) == 0);
        bits.as<std::uint8_t>()[token * width + j] = ancestor && !blind ? 1 : 0;
      }
    }
  }
  return bits;
}

struct TextPart {
  std::string text;
  char joined_by = ' ';  // '&' or '|', with everything to the left
};

std::vector<TextPart> split(const std::string& text) {
  std::vector<TextPart> parts;
  char joined_by = ' ';
  std::size_t start = 0;
  while (true) {
    const std::size_t end = std::min(text.find(" & ", start), text.find(" | ", start));
    parts.push_back({.text = text.substr(start, end - start), .joined_by = joined_by});
    if (end == std::string::npos) return parts;
    joined_by = text[end + 1];
    start = end + 3;
  }
}

bool needs_tree(const MaskSpec& spec) {
  return spec.text.find("tree") != std::string::npos;
}

bool needs_intervals(const MaskSpec& spec) {
  return spec.text.find("key_intervals") != std::string::npos;
}

void check_part(const Fields& fields, const TextPart& part) {
  if (part.text == "tree" || is_key_intervals(part.text)) return;
  try {
    const Mask mask = Mask::parse(part.text);
    const bool is_small = std::ranges::all_of(
        mask.nodes(), [](const Mask::Node& node) { return node.size <= kMaxLength; });
    if (!is_small) fields.fail("mask", fmt::format("of sizes up to {}", kMaxLength));
  } catch (const Error& error) {
    fields.fail("mask", error.expected() + ", tree or key_intervals, joined by & and |");
  }
}

// Who sees what is counted key by key, but for the simple masks over caches without holes.
void check_steps(const Fields& fields, const MaskSpec& spec, std::size_t parts,
                 const CacheSpec& cache, const Lengths& lengths) {
  if (spec.is_simple() && cache.unassigned.empty()) return;
  double pairs = 0.0;
  for (std::int64_t b = 0; b < lengths.batch(); ++b) {
    pairs += static_cast<double>(lengths.added[static_cast<std::size_t>(b)]) *
             static_cast<double>(lengths.keys(b));
  }
  const double tree =
      static_cast<double>(lengths.tokens()) * static_cast<double>(lengths.max_added());
  const double steps = std::max(pairs * static_cast<double>(parts), needs_tree(spec) ? tree : 0.0);
  if (steps <= static_cast<double>(kMaxMaskSteps)) return;
  fields.fail("mask",
              fmt::format("causal or full over a cache without holes for {:.3g} pairs of a query "
                          "and a key (at most {} otherwise)",
                          steps, kMaxMaskSteps));
}

}  // namespace

MaskSpec read_mask(const Fields& fields, const CacheSpec& cache, const Lengths& lengths) {
  MaskSpec spec{.text = fields.text("mask", "causal")};
  const std::vector<TextPart> parts = split(spec.text);
  if (parts.size() > static_cast<std::size_t>(kMaxMaskParts)) {
    fields.fail("mask", fmt::format("of at most {} parts", kMaxMaskParts));
  }
  for (const TextPart& part : parts) check_part(fields, part);
  if (needs_tree(spec) || needs_intervals(spec)) {
    spec.blind_tokens = fields.integers("blind_tokens", 0, lengths.tokens() - 1);
    std::sort(spec.blind_tokens.begin(), spec.blind_tokens.end());
  }
  check_steps(fields, spec, parts.size(), cache, lengths);
  return spec;
}

Mask build_mask(Memory& memory, const MaskSpec& spec, const Lengths& lengths, std::uint64_t seed) {
  const TensorView bits = needs_tree(spec) ? build_tree(memory, spec, lengths, seed) : TensorView{};
  const auto mask_of = [&](const std::string& text) {
    if (text == "tree") return Mask::tree(bits);
    if (!is_key_intervals(text)) return Mask::parse(text);
    const KeyIntervals intervals =
        build_key_intervals(memory, text, spec.blind_tokens, lengths, seed);
    return Mask::key_intervals(intervals.begin, intervals.end);
  };
  Mask mask;
  for (const TextPart& part : split(spec.text)) {
    const Mask next = mask_of(part.text);
    if (part.joined_by == ' ') mask = next;
    if (part.joined_by == '&') mask = mask & next;
    if (part.joined_by == '|') mask = mask | next;
  }
  return mask;
}

std::vector<std::int64_t> count_visible(const Mask& mask, const MaskSpec& spec,
                                        const CacheSpec& cache, const Lengths& lengths) {
  std::vector<std::int64_t> counts;
  const auto root = static_cast<std::int32_t>(mask.nodes().size()) - 1;
  for (std::int64_t b = 0; b < lengths.batch(); ++b) {
    const std::int64_t cached = lengths.cached[static_cast<std::size_t>(b)];
    for (std::int64_t i = 0; i < lengths.added[static_cast<std::size_t>(b)]; ++i) {
      const Query query{
          .token = static_cast<std::int64_t>(counts.size()), .cached = cached, .local = i};
      if (spec.is_simple() && cache.unassigned.empty()) {
        const std::int64_t keys = lengths.keys(b);
        counts.push_back(spec.text == "causal" ? std::clamp<std::int64_t>(cached + i + 1, 0, keys)
                                               : keys);
        continue;
      }
      std::int64_t count = 0;
      for (std::int64_t key = 0; key < lengths.keys(b); ++key) {
        if (cache.is_assigned(b, key) && shows(mask, root, query, key)) ++count;
      }
      counts.push_back(count);
    }
  }
  return counts;
}

double total_visible(const MaskSpec& spec, const CacheSpec& cache, const Lengths& lengths) {
  Memory scratch;
  const Mask mask = build_mask(scratch, spec, lengths, 0);
  const std::vector<std::int64_t> counts = count_visible(mask, spec, cache, lengths);
  return std::accumulate(counts.begin(), counts.end(), 0.0);
}

std::vector<std::int64_t> empty_tokens(const std::vector<std::int64_t>& visible) {
  std::vector<std::int64_t> tokens;
  for (std::size_t i = 0; i < visible.size(); ++i) {
    if (visible[i] == 0) tokens.push_back(static_cast<std::int64_t>(i));
  }
  return tokens;
}

}  // namespace quire::tools
