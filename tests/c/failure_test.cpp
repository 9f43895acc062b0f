// SPDX-License-Identifier: Apache-2.0
// What no C program can bring about on a CPU: exceptions of every kind, and a caller's allocator without memory.
#include "failure.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <string>

#include "call_context.h"

namespace quire::c {
namespace {

TEST(Failure, EveryExceptionBecomesAStatus) {
  EXPECT_EQ(guarded("rope", [] {}), QUIRE_OK);
  EXPECT_EQ(guarded("rope", [] { throw std::bad_alloc(); }), QUIRE_OUT_OF_MEMORY);
  EXPECT_STREQ(quire_last_error(), "rope: out of memory");
  EXPECT_EQ(guarded("rope", [] { throw std::length_error("too long"); }), QUIRE_INTERNAL);
  EXPECT_STREQ(quire_last_error(), "rope: too long");
  EXPECT_STREQ(quire_last_error_part(QUIRE_ERROR_ARGUMENT), "");
  EXPECT_EQ(guarded("rope", [] { throw 7; }), QUIRE_INTERNAL);
  EXPECT_STREQ(quire_last_error_part(QUIRE_ERROR_OP), "rope");
}

TEST(Failure, CodesOfErrors) {
  const auto status_of = [](ErrorCode code) {
    return guarded("other", [&] { throw Error(code, "rope", "q", "bf16[2]", "f32[3]"); });
  };
  EXPECT_EQ(status_of(ErrorCode::invalid_value), QUIRE_INVALID_VALUE);
  EXPECT_EQ(status_of(ErrorCode::invalid_type), QUIRE_INVALID_TYPE);
  EXPECT_EQ(status_of(ErrorCode::unsupported), QUIRE_UNSUPPORTED);
  EXPECT_EQ(status_of(ErrorCode::runtime), QUIRE_RUNTIME);
  EXPECT_STREQ(quire_last_error(), "rope: 'q' must be bf16[2], got f32[3]");
  EXPECT_STREQ(quire_last_error_part(QUIRE_ERROR_OP), "rope");
  EXPECT_STREQ(quire_last_error_part(QUIRE_ERROR_ARGUMENT), "q");
  EXPECT_STREQ(quire_last_error_part(QUIRE_ERROR_EXPECTED), "bf16[2]");
  EXPECT_STREQ(quire_last_error_part(QUIRE_ERROR_ACTUAL), "f32[3]");
}

// Gives the address that `user` names.
void* give(void* user, std::int64_t bytes) {
  return bytes <= 4096 ? *static_cast<void**>(user) : nullptr;
}

TEST(CallContext, AsksTheCallersAllocator) {
  int here = 0;
  void* memory = &here;
  quire_context given{};
  given.struct_size = sizeof given;
  given.allocate_workspace = give;
  given.allocate_user = &memory;
  const Reader in("rope");
  const CallContext call(in, &given);
  const WorkspaceAllocator& allocator = call.value().workspace_allocator;
  ASSERT_NE(allocator.allocate, nullptr);
  EXPECT_EQ(allocator.allocate(allocator.user, 4096), memory);
  EXPECT_EQ(guarded("rope", [&] { allocator.allocate(allocator.user, 8192); }),
            QUIRE_OUT_OF_MEMORY);
  EXPECT_STREQ(quire_last_error(),
               "rope: 'context.allocate_workspace' must be able to give 8192 bytes, got NULL");

  const CallContext none(in, nullptr);
  EXPECT_EQ(none.value().workspace_allocator.allocate, nullptr);
}

TEST(CallContext, TakesEveryField) {
  int stream = 0;
  quire_context given{};
  given.struct_size = sizeof given;
  given.num_threads = 3;
  given.overlaps_previous = 1;
  given.stream = &stream;
  given.workspace = &given;
  given.workspace_bytes = 77;
  given.kernel = "cpu/";
  const CallContext call(Reader("rope"), &given);
  EXPECT_EQ(call.value().num_threads, 3);
  EXPECT_TRUE(call.value().overlaps_previous);
  EXPECT_EQ(call.value().stream, &stream);
  EXPECT_EQ(call.value().workspace, &given);
  EXPECT_EQ(call.value().workspace_bytes, 77);
  EXPECT_EQ(call.value().kernel, "cpu/");
}

}  // namespace
}  // namespace quire::c
