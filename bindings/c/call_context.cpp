// SPDX-License-Identifier: Apache-2.0
#include "call_context.h"

#include "failure.h"

namespace quire::c {

CallContext::CallContext(const Reader& in, const quire_context* given) : op_(in.op()) {
  if (given == nullptr) return;
  given_ = in.structure<quire_context>("context", given, sizeof(std::size_t));
  context_.num_threads = given_.num_threads;
  context_.parallel_for = {.run = given_.parallel_for, .user = given_.parallel_for_user};
  context_.stream = given_.stream;
  context_.overlaps_previous = in.flag("context.overlaps_previous", given_.overlaps_previous);
  context_.workspace = given_.workspace;
  context_.workspace_bytes = given_.workspace_bytes;
  if (given_.allocate_workspace != nullptr) {
    context_.workspace_allocator = {.allocate = allocate, .user = this};
  }
  if (given_.kernel != nullptr) context_.kernel = given_.kernel;
}

void* CallContext::allocate(void* user, std::int64_t bytes) {
  const auto& self = *static_cast<const CallContext*>(user);
  void* memory = self.given_.allocate_workspace(self.given_.allocate_user, bytes);
  if (memory == nullptr) {
    throw OutOfMemory(ErrorCode::runtime, std::string(self.op_), "context.allocate_workspace",
                      "able to give " + std::to_string(bytes) + " bytes", "NULL");
  }
  return memory;
}

}  // namespace quire::c
