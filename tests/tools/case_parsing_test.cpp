// SPDX-License-Identifier: Apache-2.0
// Every mistake in a case file is an error that names file, case and key.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "support/temp_folder.h"
#include "tools/case_text.h"

namespace quire::tools {
namespace {

TEST(CaseParsing, AcceptsTheSmallCase) {
  EXPECT_EQ(parse_error(small_attention()), "");
}

TEST(CaseParsing, UnknownKey) {
  nlohmann::json object = small_attention();
  object["sotfcap"] = 1.0;
  EXPECT_EQ(parse_error(object), "test.json: case 'small': key 'sotfcap' is not known here");
}

TEST(CaseParsing, UnknownKeyOfTheCache) {
  nlohmann::json object = small_attention();
  object["cache"]["pagesize"] = 8;
  EXPECT_EQ(parse_error(object), "test.json: case 'small': key 'cache.pagesize' is not known here");
}

TEST(CaseParsing, KeyOfAnotherOp) {
  nlohmann::json object = small_attention();
  object["top_k"] = 8;
  EXPECT_EQ(parse_error(object), "test.json: case 'small': key 'top_k' is not known here");
}

TEST(CaseParsing, MissingKey) {
  nlohmann::json object = small_attention();
  object.erase("heads");
  EXPECT_EQ(parse_error(object),
            "test.json: case 'small': key 'heads' must be an integer >= 1, got nothing");
}

TEST(CaseParsing, MissingName) {
  nlohmann::json object = small_attention();
  object.erase("name");
  EXPECT_EQ(parse_error(object), "test.json: case 0: key 'name' must be a text, got nothing");
}

TEST(CaseParsing, ValueOfTheWrongKind) {
  nlohmann::json object = small_attention();
  object["heads"] = "four";
  EXPECT_EQ(parse_error(object),
            "test.json: case 'small': key 'heads' must be an integer >= 1, got \"four\"");
  object = small_attention();
  object["alibi"] = 1;
  EXPECT_EQ(parse_error(object),
            "test.json: case 'small': key 'alibi' must be true or false, got 1");
}

TEST(CaseParsing, ValueOutOfRange) {
  nlohmann::json object = small_attention();
  object["cache"]["page_size"] = 0;
  EXPECT_EQ(parse_error(object),
            "test.json: case 'small': key 'cache.page_size' must be an integer >= 1, got 0");
}

TEST(CaseParsing, IntegerBeyondItsLimit) {
  for (const nlohmann::json& huge : {nlohmann::json(4294967296), nlohmann::json(~std::uint64_t{0}),
                                     nlohmann::json((std::int64_t{1} << 62))}) {
    nlohmann::json object = small_attention();
    object["heads"] = huge;
    EXPECT_EQ(parse_error(object),
              "test.json: case 'small': key 'heads' must be an integer <= "
              "1048576, got " +
                  huge.dump());
  }
}

TEST(CaseParsing, LengthsWhoseSumsAreBeyondTheirLimits) {
  nlohmann::json object = small_attention();
  object["lengths"] = {{"new", {1}}, {"cached", {2147483647}}};
  EXPECT_NE(parse_error(object).find("key 'lengths' must give every sequence at most 2147483647"),
            std::string::npos);
  object["lengths"] = {{"batch", 16384}, {"new", 65536}, {"cached", 0}};
  EXPECT_NE(parse_error(object).find("key 'lengths.new' must add up to at most 16777216"),
            std::string::npos);
  object["lengths"] = {{"batch", std::int64_t{1} << 33}, {"new", 1}, {"cached", 0}};
  EXPECT_NE(parse_error(object).find("key 'lengths.batch' must be an integer <= 16384"),
            std::string::npos);
}

// Indices into tensors: what is outside would be written there.
TEST(CaseParsing, IndicesOutsideTheirTensors) {
  nlohmann::json object = nlohmann::json::parse(
      R"({"name": "q", "op": "quantize_fp8", "tags": ["tiny"], "rows": 2, "columns": 8})");
  object["zero_rows"] = {4294967296};
  EXPECT_NE(parse_error(object).find("key 'zero_rows' must be a list of integers from 0 to 1"),
            std::string::npos);
  object = nlohmann::json::parse(R"({"name": "m", "op": "merge_states", "tags": ["tiny"],
      "states": 2, "tokens": 3, "heads": 1, "value_dim": 8})");
  for (const char* key : {"empty_states", "blind_tokens"}) {
    nlohmann::json wrong = object;
    wrong[key] = {3};
    EXPECT_NE(parse_error(wrong).find(std::string("key '") + key + "' must be a list"),
              std::string::npos);
  }
  object = small_attention();
  object["shared_prefix_pages"] = 1000;
  EXPECT_NE(parse_error(object).find("key 'shared_prefix_pages' must be at most the full pages"),
            std::string::npos);
  object = small_attention();
  object["mask"] = "tree";
  object["blind_tokens"] = {5};  // of five
  EXPECT_NE(parse_error(object).find("key 'blind_tokens' must be a list of integers from 0 to 4"),
            std::string::npos);
}

TEST(CaseParsing, MaskBeyondItsLimits) {
  nlohmann::json object = small_attention();
  object["mask"] = "sliding_window:9223372036854775807";
  EXPECT_NE(parse_error(object).find("key 'mask' must be of sizes up to"), std::string::npos);
  std::string joined = "causal";
  for (int i = 0; i < 5000; ++i) joined += " & causal";
  object["mask"] = joined;
  EXPECT_NE(parse_error(object).find("key 'mask' must be of at most 16 parts"), std::string::npos);
  object["mask"] = "sliding_window:8";
  object["lengths"] = {{"new", {1000000}}, {"cached", {1000000}}};
  EXPECT_NE(parse_error(object).find("key 'mask' must be causal or full"), std::string::npos);
}

TEST(CaseParsing, LongValuesAreShortenedInMessages) {
  nlohmann::json object = small_attention();
  object["heads"] = std::string(100'000, 'x');
  EXPECT_LT(parse_error(object).size(), 400u);
}

// Sizes that are fine one by one; the tensor is named before anything is allocated.
TEST(CaseParsing, TensorBeyondTheMemoryOfACase) {
  nlohmann::json object = small_attention();
  object["heads"] = 1 << 20;
  object["cache"]["head_dim"] = 1 << 20;
  const Case parsed = parse_one(object);
  EXPECT_GT(parsed.problem->flops(), 0.0);
  EXPECT_GT(parsed.problem->footprint(), 0.0);
  for (const Layout layout : {Layout::requested, Layout::contiguous, Layout::deferred}) {
    try {
      parsed.build(layout);
      FAIL() << "built";
    } catch (const CaseError& error) {
      EXPECT_EQ(std::string(error.what()).find("test.json: case 'small': "), 0u) << error.what();
      EXPECT_NE(std::string(error.what()).find("'q'"), std::string::npos) << error.what();
    }
  }
}

TEST(CaseParsing, TextThatIsNoListOfCases) {
  const std::string deep = R"([{"name": "x", "op": "rope", "tags": )" + std::string(100'000, '[') +
                           std::string(100'000, ']') + "}]";
  const std::string valid = nlohmann::json::array({small_attention()}).dump();
  std::string bad_utf8 = valid;
  bad_utf8[bad_utf8.find("small")] = '\xff';
  for (const std::string& text :
       {deep, valid.substr(0, valid.size() / 2), bad_utf8, std::string(64, '\0'), std::string(),
        std::string("[1e999]"), std::string("[null]"), std::string("[[]]")}) {
    EXPECT_THROW(parse_case_text(text, "test.json"), CaseError) << text.substr(0, 80);
  }
  EXPECT_EQ(parse_case_text(valid, "test.json").size(), 1u);
}

TEST(CaseParsing, LayerOutOfRange) {
  nlohmann::json object = small_attention();
  object["cache"]["layer"] = 2;
  EXPECT_EQ(parse_error(object),
            "test.json: case 'small': key 'cache.layer' must be below 'layers', got 2");
}

TEST(CaseParsing, UnknownOp) {
  nlohmann::json object = small_attention();
  object["op"] = "flash_atention";
  EXPECT_NE(parse_error(object).find("key 'op' must be one of flash_attention, fused_qkv_matmul,"),
            std::string::npos);
}

TEST(CaseParsing, UnknownDtype) {
  nlohmann::json object = small_attention();
  object["q_dtype"] = "bfloat16";
  EXPECT_EQ(
      parse_error(object),
      "test.json: case 'small': key 'q_dtype' must be one of f32, f16, bf16, got \"bfloat16\"");
}

TEST(CaseParsing, UnknownTag) {
  nlohmann::json object = small_attention();
  object["tags"] = {"tiny", "huge"};
  EXPECT_NE(parse_error(object).find("key 'tags' must be a list of tiny, edge, model"),
            std::string::npos);
}

TEST(CaseParsing, UnknownMask) {
  nlohmann::json object = small_attention();
  for (const char* mask : {"causal & diagonal", "key_intervals:diagonal", "key_intervals:8"}) {
    object["mask"] = mask;
    EXPECT_NE(parse_error(object).find("key 'mask' must be"), std::string::npos) << mask;
  }
}

TEST(CaseParsing, HeadsNotAMultipleOfKvHeads) {
  nlohmann::json object = small_attention();
  object["heads"] = 3;
  EXPECT_NE(parse_error(object).find("key 'heads' must be a multiple of 'cache.kv_heads'"),
            std::string::npos);
}

TEST(CaseParsing, LengthsOfDifferentSizes) {
  nlohmann::json object = small_attention();
  object["lengths"]["cached"] = {1, 2};
  EXPECT_EQ(parse_error(object),
            "test.json: case 'small': key 'lengths' must give as many 'new' as 'cached'");
}

TEST(CaseParsing, NegativeLength) {
  nlohmann::json object = small_attention();
  object["lengths"]["cached"] = {1, -2, 0};
  EXPECT_NE(parse_error(object).find("key 'lengths.cached' must be a list of integers from 0"),
            std::string::npos);
}

TEST(CaseParsing, NumberInsteadOfListNeedsBatch) {
  nlohmann::json object = small_attention();
  object["lengths"] = {{"new", 1}, {"cached", 2}};
  EXPECT_NE(parse_error(object).find("key 'lengths.new' must be a list, or 'batch' given"),
            std::string::npos);
}

TEST(CaseParsing, UnassignedPageThatTheSequenceDoesNotHave) {
  nlohmann::json object = small_attention();
  object["cache"]["unassigned"] = {{0, 2}};  // 7 keys on pages of 4: columns 0 and 1
  EXPECT_NE(parse_error(object).find("key 'cache.unassigned' must be pairs"), std::string::npos);
}

TEST(CaseParsing, ScalesOfAnUnscaledCache) {
  nlohmann::json object = small_attention();
  object["cache"]["scales"] = "static";
  EXPECT_NE(parse_error(object).find("key 'cache.scales' must be absent"), std::string::npos);
}

TEST(CaseParsing, PeerWithoutShape) {
  nlohmann::json object = small_attention();
  object["peer"] = {{"op", "attn.decode.bf16"}};
  EXPECT_EQ(parse_error(object),
            "test.json: case 'small': key 'peer.shape' must be a text, got nothing");
}

TEST(CaseParsing, FileThatIsNoList) {
  EXPECT_THROW(parse_cases(small_attention(), "test.json"), CaseError);
}

class CaseFolder : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  std::string load_error() const {
    try {
      load_cases(folder_.string());
    } catch (const CaseError& error) {
      return error.what();
    }
    return "";
  }

  test::TempFolder folder_;
};

TEST_F(CaseFolder, WithoutFiles) {
  EXPECT_NE(load_error().find("no case files"), std::string::npos);
  EXPECT_NE(load_error().find("--cases"), std::string::npos);
}

TEST_F(CaseFolder, ThatDoesNotExist) {
  EXPECT_THROW(load_cases((folder_ / "nowhere").string()), CaseError);
}

TEST_F(CaseFolder, FileThatIsNoJson) {
  write("broken.json", "[{]");
  EXPECT_EQ(load_error().rfind("broken.json: ", 0), 0u);
}

// A pipe without a writer would be waited for, a device might not end.
TEST_F(CaseFolder, OnlyRegularFilesOfBoundedSize) {
  const std::filesystem::path path = folder_ / "a.json";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_NE(load_error().find("a.json: must be a regular file"), std::string::npos);
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_NE(load_error().find("a.json: must be a regular file"), std::string::npos);
  std::filesystem::remove(path);
  std::filesystem::create_symlink("/dev/zero", path);
  EXPECT_NE(load_error().find("a.json: must be a regular file"), std::string::npos);
  std::filesystem::remove(path);
  write("a.json", std::string(static_cast<std::size_t>(kMaxFileBytes) + 1, ' '));
  EXPECT_NE(load_error().find("a.json: must have at most 4194304 bytes"), std::string::npos);
}

TEST_F(CaseFolder, SameNameInTwoFiles) {
  const std::string text = nlohmann::json::array({small_attention()}).dump();
  write("a.json", text);
  write("b.json", text);
  EXPECT_EQ(load_error(), "b.json: case 'small': key 'name' is taken already");
}

TEST_F(CaseFolder, OtherFilesAreLeftAlone) {
  write("a.json", nlohmann::json::array({small_attention()}).dump());
  write("README.md", "# no case");
  EXPECT_EQ(load_cases(folder_.string()).size(), 1u);
}

}  // namespace
}  // namespace quire::tools
