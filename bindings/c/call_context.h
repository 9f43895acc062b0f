// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "quire/c/context.h"
#include "quire/context.h"
#include "reader.h"

namespace quire::c {

// The caller's context for one call: it holds what the op's context points to.
class CallContext {
 public:
  // null: the default one
  CallContext(const Reader& in, const quire_context* given);
  CallContext(const CallContext&) = delete;
  CallContext& operator=(const CallContext&) = delete;

  const Context& value() const { return context_; }

 private:
  static void* allocate(void* user, std::int64_t bytes);

  std::string_view op_;
  quire_context given_{};
  Context context_{};
};

}  // namespace quire::c
