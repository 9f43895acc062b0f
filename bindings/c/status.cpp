// SPDX-License-Identifier: Apache-2.0
#include "quire/c/status.h"

#include <exception>
#include <new>
#include <string>

#include "failure.h"

namespace quire::c {
namespace {

struct LastError {
  std::string message{};
  std::string op{};
  std::string argument{};
  std::string expected{};
  std::string actual{};
};

LastError& last_error() {
  thread_local LastError error;
  return error;
}

quire_status status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_value:
      return QUIRE_INVALID_VALUE;
    case ErrorCode::invalid_type:
      return QUIRE_INVALID_TYPE;
    case ErrorCode::unsupported:
      return QUIRE_UNSUPPORTED;
    case ErrorCode::runtime:
      return QUIRE_RUNTIME;
  }
  return QUIRE_INTERNAL;
}

void remember(const Error& error) {
  last_error() = {.message = error.what(),
                  .op = error.op(),
                  .argument = error.argument(),
                  .expected = error.expected(),
                  .actual = error.actual()};
}

void remember(std::string_view op, const char* what) {
  last_error() = {.message = std::string(op) + ": " + what, .op = std::string(op)};
}

quire_status record(std::string_view op) {
  try {
    throw;
  } catch (const OutOfMemory& error) {
    remember(error);
    return QUIRE_OUT_OF_MEMORY;
  } catch (const Error& error) {
    remember(error);
    return status_of(error.code());
  } catch (const std::bad_alloc&) {
    remember(op, "out of memory");
    return QUIRE_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    remember(op, error.what());
    return QUIRE_INTERNAL;
  } catch (...) {
    remember(op, "an exception of an unknown type");
    return QUIRE_INTERNAL;
  }
}

}  // namespace

quire_status record_failure(std::string_view op) noexcept {
  try {
    return record(op);
  } catch (...) {  // not even the text found memory
    last_error() = {};
    return QUIRE_OUT_OF_MEMORY;
  }
}

}  // namespace quire::c

const char* quire_last_error() {
  return quire::c::last_error().message.c_str();
}

const char* quire_last_error_part(int32_t part) {
  const quire::c::LastError& error = quire::c::last_error();
  switch (part) {
    case QUIRE_ERROR_OP:
      return error.op.c_str();
    case QUIRE_ERROR_ARGUMENT:
      return error.argument.c_str();
    case QUIRE_ERROR_EXPECTED:
      return error.expected.c_str();
    case QUIRE_ERROR_ACTUAL:
      return error.actual.c_str();
    default:
      return "";
  }
}

int32_t quire_c_abi_version() {
  return QUIRE_C_ABI_VERSION;
}

const char* quire_version() {
  return QUIRE_VERSION;
}
