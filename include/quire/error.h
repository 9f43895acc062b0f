// SPDX-License-Identifier: Apache-2.0
// The one exception type. It names the op, the argument, what was expected and what came:
//   fused_qkv_matmul: 'weight' must be bf16[6144, 4096], got bf16[4096, 6144]
// It is thrown before the first write: an op that throws has changed nothing.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "quire/export.h"

namespace quire {

enum class ErrorCode : std::uint8_t {
  invalid_value,  // shape, range, stride, contents  → Python ValueError
  invalid_type,   // dtype, kind of device           → Python TypeError
  unsupported,    // valid, but no kernel serves it  → Python NotImplementedError
  runtime,        // a device or the system failed   → Python RuntimeError
};

class QUIRE_API Error : public std::runtime_error {
 public:
  // "op: 'argument' must be <expected>, got <actual>"
  Error(ErrorCode code, std::string op, std::string argument, std::string expected,
        std::string actual);

  ErrorCode code() const { return code_; }
  const std::string& op() const { return op_; }
  const std::string& argument() const { return argument_; }
  const std::string& expected() const { return expected_; }
  const std::string& actual() const { return actual_; }

 private:
  ErrorCode code_;
  std::string op_;
  std::string argument_;
  std::string expected_;
  std::string actual_;
};

}  // namespace quire
