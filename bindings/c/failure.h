// SPDX-License-Identifier: Apache-2.0
// Exceptions become a status and a message of the thread.
#pragma once

#include <string_view>

#include "quire/c/status.h"
#include "quire/error.h"

namespace quire::c {

// The caller's allocator, or the system, has no memory left.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

// The status of the exception that is being handled; remembers its text. `op` is named by errors that name none.
quire_status record_failure(std::string_view op) noexcept;

// Runs the body of a function of the C interface: nothing that it throws goes further.
template <typename Body> quire_status guarded(std::string_view op, const Body& body) noexcept {
  try {
    body();
    return QUIRE_OK;
  } catch (...) {
    return record_failure(op);
  }
}

}  // namespace quire::c
