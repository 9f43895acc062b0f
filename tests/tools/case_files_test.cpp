// SPDX-License-Identifier: Apache-2.0
// The cases of this repository: what they must cover, and that their costs are counted as the peers
// count theirs.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tools/case/case.h"

namespace quire::tools {
namespace {

const std::vector<Case>& all_cases() {
  static const std::vector<Case> cases = load_cases(QUIRE_SOURCE_DIR "/cases");
  return cases;
}

const Case& find_peer(const std::string& op, const std::string& shape) {
  const Peer wanted{.op = op, .shape = shape};
  for (const Case& candidate : all_cases()) {
    if (candidate.peer == wanted) return candidate;
  }
  throw std::runtime_error("no case has the peer " + op + " " + shape);
}

TEST(CaseFiles, AtLeastTwoHundredSmallCases) {
  const auto small = std::count_if(all_cases().begin(), all_cases().end(), [](const Case& c) {
    return c.has_tag("tiny") || c.has_tag("edge");
  });
  EXPECT_GE(small, 200);
}

TEST(CaseFiles, SmallCasesAreSmall) {
  for (const Case& candidate : all_cases()) {
    if (candidate.has_tag("model")) continue;
    // Some paths begin at 1 536 query rows; over a few hundred keys the oracle takes a second.
    EXPECT_LT(candidate.problem->flops(), 6e8) << candidate.name;
    // A block of store_index_keys refills its slots from 64 K rows on.
    EXPECT_LT(candidate.problem->footprint(), 5e7) << candidate.name;
  }
}

TEST(CaseFiles, EveryOpHasTinyCases) {
  std::set<std::string> ops;
  for (const Case& candidate : all_cases()) {
    if (candidate.has_tag("tiny")) ops.insert(candidate.op);
  }
  for (const std::string& op : known_ops()) EXPECT_TRUE(ops.contains(op)) << op;
}

TEST(CaseFiles, NamesStartWithTheOp) {
  for (const Case& candidate : all_cases()) {
    EXPECT_TRUE(candidate.name.starts_with(candidate.op + "/")) << candidate.name;
  }
}

TEST(CaseFiles, NoTwoCasesClaimOnePeer) {
  std::set<std::pair<std::string, std::string>> seen;
  for (const Case& candidate : all_cases()) {
    if (!candidate.peer.has_value()) continue;
    EXPECT_TRUE(seen.emplace(candidate.peer->op, candidate.peer->shape).second) << candidate.name;
  }
  EXPECT_GE(seen.size(), 240u);
}

TEST(CaseFiles, BuildingIsDeterministic) {
  const Case subject = select_cases(all_cases(), {"mla_decode/tiny"}).front();
  const Built first = subject.build(Layout::requested);
  const Built second = subject.build(Layout::requested);
  ASSERT_EQ(first.memory.buffers().size(), second.memory.buffers().size());
  for (std::size_t i = 0; i < first.memory.buffers().size(); ++i) {
    const Buffer& a = first.memory.buffers()[i];
    const Buffer& b = second.memory.buffers()[i];
    EXPECT_TRUE(std::equal(a.storage.begin() + a.data_offset,
                           a.storage.begin() + a.data_offset + a.data_bytes,
                           b.storage.begin() + b.data_offset))
        << a.name;
  }
}

// Peers' own figures: TFLOP/s and GB/s times the microseconds of the same line.
struct CostCase {
  const char* op;
  const char* shape;
  double gflop;  // 0: not counted there
  double megabytes;
};

class CostOfPeers : public ::testing::TestWithParam<CostCase> {};

TEST_P(CostOfPeers, IsCountedAsTheyCount) {
  const CostCase& expected = GetParam();
  const Case& subject = find_peer(expected.op, expected.shape);
  if (expected.gflop > 0.0) {
    EXPECT_NEAR(subject.problem->flops() * 1e-9, expected.gflop, 0.005 * expected.gflop);
  }
  if (expected.megabytes > 0.0) {
    EXPECT_NEAR(subject.problem->bytes() * 1e-6, expected.megabytes, 0.005 * expected.megabytes);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Recorded, CostOfPeers,
    ::testing::Values(
        CostCase{"attn.decode.bf16", "h32/8 d128 B=1 ctx=131072 page=16", 0, 536.9},
        CostCase{"attn.prefill.bf16", "h32/8 d128 B=1 S=8192 ctx=8192 page=128 causal", 549.8, 0},
        CostCase{"attn.prefill.bf16", "h32/8 d128 B=4 S=512 ctx=8704 page=64 causal", 283.5, 0},
        CostCase{"qkv.bf16", "llama8b T=512", 25.77, 0},
        CostCase{"qkv.bf16", "llama70b T=1", 0, 167.8},
        CostCase{"mla.decode.bf16", "h128 B=128 sq=1 ctx=4096 page=64", 146.0, 604.0},
        CostCase{"mla.sparse_decode.fp8", "h128 B=64 sq=1 ctx=32768 topk=2048", 36.5, 86.0}));

TEST(CaseFiles, MlaPrefillHasPartsForItsTwoHalves) {
  const Case subject = select_cases(all_cases(), {"mla_prefill/model/bf16_b1_s8192"}).front();
  ASSERT_EQ(subject.peer_parts.size(), 2u);
  EXPECT_FALSE(subject.peer.has_value());
  EXPECT_EQ(subject.peer_parts[0].op, "mla.prefill.attn.bf16");
  EXPECT_EQ(subject.peer_parts[1], (Peer{"mla.prefill.upproj.bf16", "T=8192 n=32768 k=512"}));
}

TEST(SelectCases, ByNameBeginningOpAndFile) {
  EXPECT_EQ(select_cases(all_cases(), {"rope/tiny"}).size(), 1u);
  EXPECT_GT(select_cases(all_cases(), {"flash_attention/gqa"}).size(), 5u);
  EXPECT_GT(select_cases(all_cases(), {"store_scales"}).size(), 3u);
  EXPECT_GT(select_cases(all_cases(), {"companions"}).size(), 100u);
}

TEST(SelectCases, WhatFindsNothingIsAnError) {
  EXPECT_THROW(select_cases(all_cases(), {"rope/tiny", "rope/tinny"}), CaseError);
}

}  // namespace
}  // namespace quire::tools
