// SPDX-License-Identifier: Apache-2.0
#include "ops/bad_input.h"

namespace quire::test {

void expect_refusal(Sample& sample, ErrorCode code, const std::string& argument,
                    const std::string& message, const Context& context) {
  const Arena::Snapshot before = sample.arena.snapshot();
  try {
    sample.run(context);
    ADD_FAILURE() << sample.op << " ran";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_EQ(error.op(), sample.op) << error.what();
    EXPECT_EQ(error.argument(), argument) << error.what();
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
  }
  EXPECT_TRUE(before == sample.arena.snapshot()) << "something was written";
}

TEST_P(BadInputTest, IsRefusedBeforeAnythingIsWritten) {
  const BadInput& row = GetParam();
  const std::unique_ptr<Sample> sample = row.make();
  expect_refusal(*sample, row.code, row.argument, row.message);
}

}  // namespace quire::test
