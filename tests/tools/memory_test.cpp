// SPDX-License-Identifier: Apache-2.0
#include "tools/case/memory.h"

#include <gtest/gtest.h>

#include <cstring>

namespace quire::tools {
namespace {

TEST(Memory, TensorsAreAlignedAndGuarded) {
  Memory memory;
  const TensorView view = memory.allocate("a", DType::bf16, {3, 5});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.data) % Memory::kAlignment, 0u);
  const Buffer& buffer = memory.buffers()[0];
  EXPECT_GE(buffer.data_offset, Memory::kGuardBytes);
  EXPECT_GE(static_cast<std::int64_t>(buffer.storage.size()),
            buffer.data_offset + buffer.data_bytes + Memory::kGuardBytes);
  EXPECT_EQ(memory.total_bytes(), 30);
}

TEST(Memory, ReportsEveryByteOutsideWhatMayBeWritten) {
  Memory memory;
  const TensorView view = memory.allocate("a", DType::u8, {16});
  memory.allow_write(view.as<std::byte>() + 4, 8);
  const Memory::Snapshot before = memory.snapshot();
  for (std::int64_t i = -2; i < 18; ++i) {
    view.as<std::uint8_t>()[i] ^= 0x55;
    EXPECT_EQ(memory.stray_writes(before).empty(), i >= 4 && i < 12) << i;
    view.as<std::uint8_t>()[i] ^= 0x55;
  }
  EXPECT_TRUE(memory.differences(before).empty());
}

TEST(Memory, CountsStrayBytesAndNamesTheFirst) {
  Memory memory;
  const TensorView view = memory.allocate("table", DType::u8, {16});
  std::memset(view.data, 0, 16);
  const Memory::Snapshot before = memory.snapshot();
  view.as<std::uint8_t>()[3] = 7;
  view.as<std::uint8_t>()[9] = 1;
  ASSERT_EQ(memory.stray_writes(before).size(), 1u);
  EXPECT_EQ(memory.stray_writes(before)[0],
            "wrote 'table' where it may not: byte 3 of 16, 0x00 became 0x07 (and 1 bytes more)");
}

TEST(Memory, RestoreBringsEverythingBack) {
  Memory memory;
  const TensorView view = memory.allocate("a", DType::u8, {4});
  const Memory::Snapshot before = memory.snapshot();
  view.as<std::uint8_t>()[0] = 1;
  view.as<std::uint8_t>()[-1] = 1;
  EXPECT_EQ(memory.differences(before).size(), 1u);
  memory.restore(before);
  EXPECT_TRUE(memory.differences(before).empty());
  EXPECT_EQ(view.as<std::uint8_t>()[0], 0xff);
}

TEST(Memory, WritableBytesMustBeInABuffer) {
  Memory memory;
  const TensorView view = memory.allocate("a", DType::u8, {4});
  EXPECT_THROW(memory.allow_write(view.data, 5), std::logic_error);
}

}  // namespace
}  // namespace quire::tools
