// SPDX-License-Identifier: Apache-2.0
// Every mistake in a case file is an error that names file, case and key.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

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
  object["mask"] = "causal & diagonal";
  EXPECT_NE(parse_error(object).find("key 'mask' must be"), std::string::npos);
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
  EXPECT_NE(parse_error(object).find("key 'lengths.cached' must be a list of integers >= 0"),
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
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("quire_cases_" + std::to_string(reinterpret_cast<std::uintptr_t>(this)));
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

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

  std::filesystem::path folder_;
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
