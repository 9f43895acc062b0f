// SPDX-License-Identifier: Apache-2.0
// A case file's text: cases that can be built, or an error that names the place. Texts are changed value by value: bytes
// alone would hardly ever leave JSON behind.
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "fuzz/problems/draw.h"
#include "quire/error.h"
#include "tools/case/case.h"

namespace {

// Larger problems are refused: the time goes to other texts.
constexpr std::int64_t kMostBytes = 1 << 20;

void build(const quire::tools::Case& parsed) {
  try {
    const quire::tools::Built built =
        parsed.build(quire::tools::Layout::requested, /*draw=*/0, kMostBytes);
    static_cast<void>(built.supports({}));
  } catch (const quire::tools::CaseError&) {
  } catch (const quire::Error&) {
  }
}

// Any value somewhere below.
nlohmann::json& descend(nlohmann::json& value, quire::test::Draw& draw) {
  if (!value.is_structured() || value.empty() || draw.one_in(12)) return value;
  auto child = value.begin();
  std::advance(child, draw.below(static_cast<std::int64_t>(value.size())));
  return descend(*child, draw);
}

nlohmann::json other_value(const nlohmann::json& document, quire::test::Draw& draw) {
  switch (draw.below(7)) {
    case 0:
      return draw.pick<std::int64_t>({0, 1, 2, -1, 3, 7, 8, 17, 64, 1000});
    case 1:
      return draw.pick<std::int64_t>({1ll << 31, 1ll << 32, 1ll << 33, 1ll << 40, 1ll << 62,
                                      -(1ll << 31), -(1ll << 62), (1ll << 31) - 1});
    case 2:
      return draw.pick({0.5, -1.0, 1e300, 1e-300, 1e18});
    case 3:
      return draw.pick<const char*>({"", "causal", "bf16", "fp8_e4m3", "i8", "f32", "scaled",
                                     "int4", "static", "sliding_window:9223372036854775807",
                                     "chunked:0", "tree & tree | causal", "\xc3\xa9",
                                     "mla_fp8_block", "mla_fp8_e8m0", "page_end", "e8m0"});
    case 4:
      return draw.one_in(2);
    case 5:
      return draw.pick<nlohmann::json>(
          {nullptr, nlohmann::json::array(), nlohmann::json::object(), {1, {2, {3}}}});
    default:
      return draw.pick({document, document.empty() ? document : document.front()});
  }
}

void change(nlohmann::json& document, quire::test::Draw& draw) {
  nlohmann::json& place = descend(document, draw);
  const bool is_object = place.is_object();
  if (is_object && draw.one_in(2)) {
    place[draw.pick<const char*>({"packed", "bias", "lse", "sinks", "layers", "layer", "unassigned",
                                  "scales", "order", "mask", "extra", "perm", "zeros", "pairs"})] =
        other_value(document, draw);
  } else if (is_object && !place.empty() && draw.one_in(3)) {
    place.erase(place.begin());
  } else {
    place = other_value(document, draw);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    for (const quire::tools::Case& parsed : quire::tools::parse_case_text(text, "fuzz.json")) {
      build(parsed);
    }
  } catch (const quire::tools::CaseError&) {
    return 0;
  }
  return 0;
}

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t capacity);

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t capacity, unsigned seed) {
  quire::test::Draw draw(seed);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  nlohmann::json document = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded() || draw.one_in(8)) return LLVMFuzzerMutate(data, size, capacity);
  for (std::int64_t count = draw.between(1, 3); count > 0; --count) change(document, draw);
  const std::string changed =
      document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (changed.size() > capacity) return LLVMFuzzerMutate(data, size, capacity);
  std::memcpy(data, changed.data(), changed.size());
  return changed.size();
}
