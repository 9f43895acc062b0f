// SPDX-License-Identifier: Apache-2.0
// A table of bad inputs: a valid problem, one mutation, and the error that must come of it before
// anything is written.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "ops/sample.h"
#include "quire/error.h"

namespace quire::test {

struct BadInput {
  std::string name;
  ErrorCode code = ErrorCode::invalid_value;
  std::string argument;
  std::string message;  // part of what()
  MakeSample make;      // mutated already
};

inline std::ostream& operator<<(std::ostream& stream, const BadInput& row) {
  return stream << row.name;
}

template <typename S>
BadInput bad(std::string name, std::string argument, std::string message, void (*mutate)(S&),
             ErrorCode code = ErrorCode::invalid_value) {
  return {.name = std::move(name),
          .code = code,
          .argument = std::move(argument),
          .message = std::move(message),
          .make = [mutate]() -> std::unique_ptr<Sample> {
            auto sample = std::make_unique<S>();
            mutate(*sample);
            return sample;
          }};
}

template <typename S>
BadInput bad_type(std::string name, std::string argument, std::string message, void (*mutate)(S&)) {
  return bad<S>(std::move(name), std::move(argument), std::move(message), mutate,
                ErrorCode::invalid_type);
}

class BadInputTest : public testing::TestWithParam<BadInput> {};

inline std::string bad_input_name(const testing::TestParamInfo<BadInput>& info) {
  return info.param.name;
}

// Runs the op, expects the error, and compares every byte of every buffer.
void expect_refusal(Sample& sample, ErrorCode code, const std::string& argument,
                    const std::string& message, const Context& context = {});

}  // namespace quire::test
