// SPDX-License-Identifier: Apache-2.0
// What is wrong for any tensor is wrong for every tensor of every op: each is spoiled in turn, in
// each way.
#include <gtest/gtest.h>

#include "ops/bad_input.h"
#include "ops/sample.h"
#include "ops/spoilers.h"

namespace quire::test {
namespace {

struct EveryTensorCase {
  NamedSample sample;
  Spoiler spoiler;
};

std::ostream& operator<<(std::ostream& stream, const EveryTensorCase& row) {
  return stream << row.sample.name << "_" << row.spoiler.name;
}

std::vector<EveryTensorCase> all_cases() {
  std::vector<EveryTensorCase> cases;
  for (const NamedSample& sample : all_samples()) {
    for (const Spoiler& spoiler : kSpoilers) cases.push_back({sample, spoiler});
  }
  return cases;
}

class EveryTensorTest : public testing::TestWithParam<EveryTensorCase> {};

// The error must be right and nothing written. Which argument it names may differ: a size is often
// somebody else's expectation.
void expect_any_refusal(Sample& sample, ErrorCode code) {
  const Arena::Snapshot before = sample.arena.snapshot();
  try {
    sample.run({});
    ADD_FAILURE() << "the op ran";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_EQ(error.op(), sample.op) << error.what();
  }
  EXPECT_TRUE(before == sample.arena.snapshot()) << "something was written";
}

TEST_P(EveryTensorTest, IsRefusedBeforeAnythingIsWritten) {
  const auto& [named, spoiler] = GetParam();
  for (const auto& [name, unused] : named.make()->tensors()) {
    SCOPED_TRACE(name);
    const std::unique_ptr<Sample> sample = named.make();
    spoiler.spoil(sample->tensor(name));
    expect_any_refusal(*sample, spoiler.code);
  }
}

INSTANTIATE_TEST_SUITE_P(Samples, EveryTensorTest, testing::ValuesIn(all_cases()),
                         [](const auto& info) { return testing::PrintToString(info.param); });

class DeviceMixTest : public testing::TestWithParam<NamedSample> {};

TEST_P(DeviceMixTest, OneTensorElsewhereIsRefused) {
  for (const auto& [name, unused] : GetParam().make()->tensors()) {
    SCOPED_TRACE(name);
    const std::unique_ptr<Sample> sample = GetParam().make();
    sample->tensor(name).device = {.kind = DeviceKind::cuda, .index = 1};
    expect_any_refusal(*sample, ErrorCode::invalid_type);
  }
}

TEST_P(DeviceMixTest, OneTensorOnAnotherGpuIsRefused) {
  const std::size_t count = GetParam().make()->tensors().size();
  for (std::size_t i = 0; i < count; ++i) {
    const std::unique_ptr<Sample> sample = GetParam().make();
    sample->move_to_gpu();
    sample->tensors()[i].second->device.index = 1;
    SCOPED_TRACE(sample->tensors()[i].first);
    expect_any_refusal(*sample, ErrorCode::invalid_type);
  }
}

INSTANTIATE_TEST_SUITE_P(Samples, DeviceMixTest, testing::ValuesIn(all_samples()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace quire::test
