// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "support/temp_folder.h"
#include "tools/bench/bar_chart.h"
#include "tools/bench/bench_command.h"
#include "tools/case_text.h"

namespace quire::tools {
namespace {

BenchRow sample_row() {
  BenchRow row;
  row.label = {.op = "attn.decode.bf16", .shape = "h32/8"};
  row.case_name = "flash_attention/x";
  row.kernel = "reference/flash_attention";
  row.flops = 4e9;
  row.bytes = 2e9;
  row.us = 1000.0;
  row.us_min = 900.0;
  row.runs = 5;
  row.products = Products::bf16;
  row.ceiling = {.target = "amx",
                 .read_gbs = 4000.0,
                 .f32_gflops = 100.0,
                 .bf16_gflops = 16'000.0,
                 .int8_gops = 32'000.0};
  return row;
}

class PeerFile : public ::testing::Test {
 protected:
  PeerTimes load(const std::string& text) const {
    std::ofstream(path_) << text;
    return PeerTimes::load(path_);
  }

  test::TempFolder folder_;
  const std::string path_ = (folder_ / "peers.jsonl").string();
};

TEST(BenchRow, RatesFollowFromTheMedian) {
  EXPECT_DOUBLE_EQ(sample_row().tflops(), 4.0);
  EXPECT_DOUBLE_EQ(sample_row().gbs(), 2000.0);
}

TEST(BenchRow, JsonHasThePeersKeysAndOurs) {
  const nlohmann::json row = to_json(sample_row(), 2);
  EXPECT_EQ(row.at("op"), "attn.decode.bf16");
  EXPECT_EQ(row.at("shape"), "h32/8");
  EXPECT_EQ(row.at("us"), 1000.0);
  EXPECT_EQ(row.at("us_min"), 900.0);
  EXPECT_EQ(row.at("percent_of_ceiling"), 50.0);
  EXPECT_EQ(row.at("ceiling"), "read");
  EXPECT_EQ(row.at("ceiling_gflops"), 16'000.0);
  for (const char* key :
       {"peer", "case", "kernel", "device", "machine", "commit", "compiler", "version"}) {
    ASSERT_TRUE(row.at(key).is_string()) << key;
    EXPECT_FALSE(row.at(key).get<std::string>().empty()) << key;
  }
  for (const char* key : {"tflops", "gbs", "percent_of_ceiling", "ceiling_gbs", "ceiling_gflops",
                          "threads", "runs"}) {
    EXPECT_TRUE(row.at(key).is_number()) << key;
  }
  EXPECT_FALSE(row.contains("parts"));
}

TEST(BenchRow, JsonNamesThePartsOfTheWork) {
  BenchRow row = sample_row();
  row.parts = {{.op = "a", .shape = "b"}};
  EXPECT_EQ(to_json(row, 1).at("parts").dump(), R"([{"op":"a","shape":"b"}])");
}

TEST(BenchRow, LabelIsThePeersOrOurOwn) {
  nlohmann::json object = small_attention();
  EXPECT_EQ(parse_one(object).label(), (Peer{"flash_attention", "small"}));
  object["peer"] = {{"op", "attn.x"}, {"shape", "h4 y"}};
  EXPECT_EQ(parse_one(object).label(), (Peer{"attn.x", "h4 y"}));
}

TEST_F(PeerFile, JoinsOnOpAndShapeAndTakesTheFastest) {
  const PeerTimes times =
      load(R"({"op": "attn.decode.bf16", "shape": "h32/8", "peer": "slow", "us": 30.0})"
           "\n"
           R"({"op": "attn.decode.bf16", "shape": "h32/8", "peer": "fast", "us": 10.0})"
           "\n"
           "\n"
           R"({"op": "attn.decode.bf16", "shape": "h64/8", "peer": "other", "us": 1.0})"
           "\n"
           R"({"op": "ceiling.copy", "shape": "2GiB", "gbs": 4000})"
           "\n");
  const std::optional<PeerTime> found = times.find(sample_row());
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->peer, "fast");
  EXPECT_EQ(found->us, 10.0);
  EXPECT_FALSE(times.find(Peer{"attn.decode.bf16", "h16/8"}).has_value());
  EXPECT_FALSE(times.find(Peer{"ceiling.copy", "2GiB"}).has_value());
}

TEST_F(PeerFile, AddsUpPartsOnlyIfAllAreThere) {
  const PeerTimes times = load(R"({"op": "p.attn", "shape": "1", "peer": "A", "us": 5.0})"
                               "\n"
                               R"({"op": "p.gemm", "shape": "1", "peer": "B", "us": 3.0})"
                               "\n");
  BenchRow row = sample_row();
  row.parts = {{.op = "p.attn", .shape = "1"}, {.op = "p.gemm", .shape = "1"}};
  ASSERT_TRUE(times.find(row).has_value());
  EXPECT_EQ(times.find(row)->us, 8.0);
  EXPECT_EQ(times.find(row)->peer, "A + B");
  row.parts.push_back({.op = "p.norm", .shape = "1"});
  EXPECT_FALSE(times.find(row).has_value());
}

TEST_F(PeerFile, BrokenLineNamesItsNumber) {
  try {
    load("{\"op\": \"a\", \"shape\": \"b\", \"us\": 1}\nnot json\n");
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find(path_ + ":2: "), std::string::npos) << error.what();
  }
}

TEST_F(PeerFile, MissingFile) {
  EXPECT_THROW(PeerTimes::load(path_ + ".none"), std::runtime_error);
}

TEST(Ceiling, FloorIsTheSlowerOfMemoryAndTheProductsOfTheCase) {
  const Ceiling ceiling{.target = "amx",
                        .read_gbs = 10.0,
                        .f32_gflops = 100.0,
                        .bf16_gflops = 1000.0,
                        .int8_gops = 2000.0};
  EXPECT_DOUBLE_EQ(ceiling.floor(1e9, 10e9, Products::f32).seconds, 1.0);
  EXPECT_EQ(ceiling.floor(1e9, 10e9, Products::f32).what, "read");
  EXPECT_DOUBLE_EQ(ceiling.floor(5e12, 10e9, Products::f32).seconds, 50.0);
  EXPECT_EQ(ceiling.floor(5e12, 10e9, Products::f32).what, "amx f32");
  EXPECT_DOUBLE_EQ(ceiling.floor(5e12, 10e9, Products::bf16).seconds, 5.0);
  EXPECT_EQ(ceiling.floor(5e12, 10e9, Products::bf16).what, "amx bf16");
  EXPECT_DOUBLE_EQ(ceiling.floor(5e12, 10e9, Products::int8).seconds, 2.5);
}

TEST(Ceiling, TargetIsTheMiddleOfAKernelsName) {
  EXPECT_EQ(target_of("cpu/neon_bf16/flash_attention"), "neon_bf16");
  EXPECT_EQ(target_of("reference/flash_attention"), "");
  EXPECT_EQ(target_of("cpu/"), "");
}

TEST(Ceiling, IsMeasured) {
  const Ceiling ceiling = measure_ceiling("portable", 1);
  EXPECT_EQ(ceiling.target, "portable");
  EXPECT_GT(ceiling.read_gbs, 0.05);
  EXPECT_GT(ceiling.f32_gflops, 0.05);
  EXPECT_GT(ceiling.int8_gops, 0.05);
}

TEST(Ceiling, BestOfTakesEachFigureFromTheBetter) {
  const Ceiling best = best_of({.target = "amx", .read_gbs = 1, .bf16_gflops = 4},
                               {.target = "amx", .read_gbs = 2, .bf16_gflops = 3});
  EXPECT_EQ(best.read_gbs, 2);
  EXPECT_EQ(best.bf16_gflops, 4);
  EXPECT_EQ(best.target, "amx");
}

TEST(Products, AreWhatTheNumbersAreExactIn) {
  EXPECT_EQ(products_of(DType::f32), Products::f32);
  EXPECT_EQ(products_of(DType::f16), Products::f32);
  EXPECT_EQ(products_of(DType::bf16), Products::bf16);
  EXPECT_EQ(products_of(DType::fp8_e4m3), Products::bf16);
  EXPECT_EQ(products_of(DType::i8), Products::int8);
}

TEST(Products, FollowFromTheCase) {
  nlohmann::json attention = small_attention();
  attention["q_dtype"] = "bf16";
  EXPECT_EQ(parse_one(attention).problem->products(), Products::bf16);
  attention["q_dtype"] = "f32";
  EXPECT_EQ(parse_one(attention).problem->products(), Products::f32);
  for (const Case& loaded : load_cases(QUIRE_SOURCE_DIR "/cases")) {
    if (loaded.name.find("int4") != std::string::npos && loaded.op == "fused_qkv_matmul") {
      EXPECT_EQ(loaded.problem->products(), Products::int8) << loaded.name;
    }
    if (loaded.op == "mla_indexer") {
      EXPECT_EQ(loaded.problem->products(), Products::bf16) << loaded.name;
    }
  }
}

TEST(Bench, TimesACase) {
  Context context;
  context.kernel = "reference";
  const BenchRow row = time_case(parse_one(small_attention()), context, 0.01);
  EXPECT_GE(row.runs, 3);
  EXPECT_GT(row.us_min, 0.0);
  EXPECT_GE(row.us, row.us_min);
  EXPECT_EQ(row.kernel, "reference/flash_attention");
  EXPECT_FALSE(row.ceiling.target.empty());  // the reference is measured against the best target
  EXPECT_GT(row.percent(), 0.0);
}

TEST(Bench, MeasuresTheCeilingOfTheKernelsTarget) {
  Context context;
  context.kernel = "cpu/portable";
  context.num_threads = 1;
  const BenchRow row = time_case(parse_one(small_attention()), context, 0.01);
  EXPECT_EQ(row.kernel, "cpu/portable/flash_attention");
  EXPECT_EQ(row.ceiling.target, "portable");
}

TEST(Bench, LeavesOutWhatIsTooLongOrTooLarge) {
  nlohmann::json object = small_attention();
  constexpr std::int64_t kMemory = std::int64_t{1} << 34;
  constexpr KernelSpeed kSlow{.flops = 1e8, .bytes = 1e8};
  constexpr KernelSpeed kFast{.flops = 1e12, .bytes = 1e12};
  EXPECT_FALSE(reason_to_skip(parse_one(object), kSlow, 1.0, kMemory).has_value());
  object["lengths"] = {{"batch", 64}, {"new", 1}, {"cached", 100000}};
  EXPECT_NE(reason_to_skip(parse_one(object), kSlow, 1.0, kMemory).value_or("").find("s a run"),
            std::string::npos);
  EXPECT_FALSE(reason_to_skip(parse_one(object), kFast, 1.0, kMemory).has_value());
  EXPECT_NE(reason_to_skip(parse_one(object), kSlow, 1.0, 1000).value_or("").find("of memory"),
            std::string::npos);
}

TEST(BarChart, IsWellFormedAndScaledToTheLargest) {
  const std::string svg = draw_bar_chart("a < b", {{.label = "x & y", .value = 50.0, .text = "50%"},
                                                   {.label = "z", .value = 25.0, .text = "25%"}});
  EXPECT_EQ(svg.rfind("<svg ", 0), 0u);
  EXPECT_NE(svg.find("a &lt; b"), std::string::npos);
  EXPECT_NE(svg.find("x &amp; y"), std::string::npos);
  EXPECT_NE(svg.find("width=\"420.0\""), std::string::npos);
  EXPECT_NE(svg.find("width=\"210.0\""), std::string::npos);
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
}

}  // namespace
}  // namespace quire::tools
