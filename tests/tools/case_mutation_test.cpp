// SPDX-License-Identifier: Apache-2.0
// The repository's small cases with numbers, keys and letters changed at random: each is parsed, counted and built in
// every layout, or is a CaseError or an Error of the library. Nothing else may happen.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "quire/error.h"
#include "tools/case/case.h"
#include "tools/text_file.h"

namespace quire::tools {
namespace {

using Json = nlohmann::json;
constexpr std::int64_t kMaxBuiltBytes = 1 << 20;  // larger problems are refused like too large ones

std::vector<Json> small_cases() {
  std::vector<Json> cases;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(QUIRE_SOURCE_DIR "/cases")) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const auto& path : files) {
    for (const Json& object : parse_json(read_text_file(path.string(), kMaxFileBytes), 16)) {
      if (object.at("tags").front() != "model") cases.push_back(object);
    }
  }
  return cases;
}

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(random_() % bound); }

  // One value of the case, however deep.
  void change_value(Json& object) {
    std::vector<Json::json_pointer> places;
    const Json flat = object.flatten();
    for (const auto& [place, value] : flat.items()) {
      const Json::json_pointer whole(place);
      for (Json::json_pointer at = whole; !at.empty(); at = at.parent_pointer()) {
        places.push_back(at);
      }
    }
    std::erase_if(places, [](const Json::json_pointer& at) { return at.to_string() == "/op"; });
    const Json::json_pointer place = places[below(places.size())];
    const bool is_key = place.parent_pointer().empty();
    if (is_key && below(4) == 0) {
      object.erase(place.back());
    } else {
      object[place] = value();
    }
  }

  // Text that ends early, or has other bytes.
  void change_text(std::string& text) {
    if (below(2) == 0) return text.resize(below(text.size()));
    text[below(text.size())] = static_cast<char>(below(256));
  }

 private:
  Json value() {
    static const Json values = Json::parse(R"([
        0, 1, -1, 2, 3, 7, 64, 255, 65537, 1000000, 2147483647, 2147483648, 4294967295, 4294967296,
        4294967297, 1099511627776, 4611686018427387904, 9223372036854775807, -9223372036854775808,
        18446744073709551615, 0.5, 1e300, -1e300, "x", "", "tree",
        "tree | sliding_window:9223372036854775807", null, true, [], {}, [[4294967295, 1]],
        [-1, 4294967296]])");
    return values[below(values.size())];
  }

  std::mt19937_64 random_;
};

enum class Ending : std::uint8_t { refused, built };

Ending parse_and_build(const std::string& text) {
  try {
    for (const Case& parsed : parse_case_text(text, "mutated.json")) {
      EXPECT_GE(parsed.problem->footprint() + parsed.problem->bytes(), 0.0) << text;
      EXPECT_GE(parsed.problem->flops(), 0.0) << text;
      for (const Layout layout : {Layout::requested, Layout::contiguous, Layout::deferred}) {
        const Built built = parsed.build(layout, 0, kMaxBuiltBytes);
        if (layout != Layout::deferred) built.supports(Context{});
      }
    }
    return Ending::built;
  } catch (const CaseError& error) {
    EXPECT_EQ(std::string(error.what()).find("mutated.json: "), 0u) << error.what();
    EXPECT_LT(std::string(error.what()).size(), 1200u) << error.what();
    return Ending::refused;
  } catch (const Error&) {
    return Ending::refused;  // the library's answer to a problem that no op has
  }
}

TEST(CaseMutation, EveryFileIsCasesOrAnError) {
  const std::vector<Json> cases = small_cases();
  Mutator mutator(24);
  int built = 0;
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    Json object = cases[mutator.below(cases.size())];
    for (std::size_t changes = 1 + mutator.below(3); changes > 0; --changes) {
      mutator.change_value(object);
    }
    std::string text = Json::array({object}).dump();
    if (mutator.below(10) == 0) mutator.change_text(text);
    SCOPED_TRACE(i);
    ++(parse_and_build(text) == Ending::built ? built : refused);
  }
  // Both ends are reached, so that neither half of the test is empty.
  EXPECT_GT(built, 100);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace quire::tools
