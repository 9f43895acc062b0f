// SPDX-License-Identifier: Apache-2.0
#include "quire/error.h"

#include <utility>

namespace quire {
namespace {

std::string message(const std::string& op, const std::string& argument, const std::string& expected,
                    const std::string& actual) {
  return op + ": '" + argument + "' must be " + expected + ", got " + actual;
}

}  // namespace

Error::Error(ErrorCode code, std::string op, std::string argument, std::string expected,
             std::string actual)
    : std::runtime_error(message(op, argument, expected, actual)),
      code_(code),
      op_(std::move(op)),
      argument_(std::move(argument)),
      expected_(std::move(expected)),
      actual_(std::move(actual)) {}

}  // namespace quire
