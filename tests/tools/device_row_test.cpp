// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/device_row.h"

#include <gtest/gtest.h>

namespace quire::tools {
namespace {

DeviceRow sample() {
  DeviceRow row;
  row.label = {.op = "qkv.bf16", .shape = "llama8b T=1"};
  row.case_name = "fused_qkv_matmul/x";
  row.kernel = "cuda/sm90/fused_qkv_matmul";
  row.flops = 5e7;
  row.bytes = 4e7;
  row.own = {.dirty = {.median = 20.0, .lowest = 19.0, .runs = 15},
             .clean = {.median = 16.0, .lowest = 15.5, .runs = 15}};
  return row;
}

const DeviceCeiling kCeiling{.read_gbs = 4000.0, .copy_gbs = 3000.0, .graph_us = 4.1};
const DeviceIdentity kIdentity{.name = "NVIDIA H200", .driver = "13.0", .commit = "abc"};

TEST(DeviceRow, TheMedianIsTheMiddleOfTheSortedTimes) {
  const Timing timing = summarize({5.0, 1.0, 9.0});
  EXPECT_EQ(timing.median, 5.0);
  EXPECT_EQ(timing.lowest, 1.0);
  EXPECT_EQ(timing.runs, 3);
  EXPECT_EQ(summarize({}).runs, 0);
}

TEST(DeviceRow, JsonHasBothColumnsAndTheCeilings) {
  const nlohmann::json row = to_json(sample(), kCeiling, kIdentity, std::nullopt);
  EXPECT_EQ(row.at("op"), "qkv.bf16");
  EXPECT_EQ(row.at("shape"), "llama8b T=1");
  EXPECT_EQ(row.at("us"), 20.0);
  EXPECT_EQ(row.at("us_min"), 19.0);
  EXPECT_EQ(row.at("us_clean"), 16.0);
  EXPECT_EQ(row.at("graph"), true);
  EXPECT_EQ(row.at("runs"), 15);
  EXPECT_EQ(row.at("gbs"), 2000.0);
  EXPECT_EQ(row.at("gbs_clean"), 2500.0);
  EXPECT_EQ(row.at("percent_of_read"), 50.0);
  EXPECT_EQ(row.at("percent_of_copy"), 66.667);
  EXPECT_EQ(row.at("ceiling_read_gbs"), 4000.0);
  EXPECT_EQ(row.at("ceiling_copy_gbs"), 3000.0);
  EXPECT_EQ(row.at("ceiling_graph_us"), 4.1);
  EXPECT_EQ(row.at("device"), "NVIDIA H200");
  EXPECT_EQ(row.at("driver"), "13.0");
  EXPECT_EQ(row.at("commit"), "abc");
  EXPECT_FALSE(row.contains("against"));
}

TEST(DeviceRow, AnOpThatOnlyMovesDataIsHeldAgainstACopyOfAsManyBytes) {
  DeviceRow row = sample();
  EXPECT_FALSE(to_json(row, kCeiling, kIdentity, std::nullopt).contains("us_same_copy"));
  row.same_copy = Timings{.dirty = {.median = 18.0, .lowest = 17.5, .runs = 15},
                          .clean = {.median = 12.0, .lowest = 11.5, .runs = 15}};
  const nlohmann::json object = to_json(row, kCeiling, kIdentity, std::nullopt);
  EXPECT_EQ(object.at("us_same_copy"), 18.0);
  EXPECT_EQ(object.at("us_same_copy_clean"), 12.0);
  EXPECT_EQ(object.at("percent_of_same_copy"), 90.0);
  EXPECT_EQ(object.at("percent_of_same_copy_clean"), 75.0);
}

TEST(DeviceRow, JsonHasTheRatioToAPeer) {
  const nlohmann::json row =
      to_json(sample(), kCeiling, kIdentity, PeerTime{.peer = "cublas", .us = 25.0});
  EXPECT_EQ(row.at("against").at("peer"), "cublas");
  EXPECT_EQ(row.at("against").at("ratio"), 0.8);
}

}  // namespace
}  // namespace quire::tools
