// SPDX-License-Identifier: Apache-2.0
// The memory of one built problem: named buffers, each between guard bytes, and a note of which
// bytes the op may write. Everything else must be the same afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "quire/tensor_view.h"

namespace quire::tools {

struct ByteRange {
  std::int64_t first;  // from the start of the storage, guards included
  std::int64_t count;
};

struct Buffer {
  std::string name;
  std::vector<std::byte> storage;  // padding, guard, data, guard
  std::int64_t data_offset = 0;
  std::int64_t data_bytes = 0;
  std::vector<ByteRange> writable;
};

class Memory {
 public:
  static constexpr std::int64_t kGuardBytes = 256;
  static constexpr std::int64_t kAlignment = 256;

  // A row-major tensor; its bytes start as 0xff, which is NaN in every float type.
  TensorView allocate(const std::string& name, DType dtype, std::span<const std::int64_t> shape);
  TensorView allocate(const std::string& name, DType dtype,
                      std::initializer_list<std::int64_t> shape) {
    return allocate(name, dtype, std::span(shape.begin(), shape.size()));
  }
  // The op may write these bytes of a buffer, respectively all elements of a dense tensor.
  void allow_write(const void* start, std::int64_t bytes);
  void allow_write(const TensorView& tensor);

  using Snapshot = std::vector<std::vector<std::byte>>;
  Snapshot snapshot() const;
  void restore(const Snapshot& snapshot);

  // What changed although nobody may write it, one line per buffer: "'page_table' byte 12: 0x03
  // became 0x04 (and 7 more)".
  std::vector<std::string> stray_writes(const Snapshot& before) const;
  // Buffers whose bytes differ from a snapshot, guards included.
  std::vector<std::string> differences(const Snapshot& other) const;

  std::span<const Buffer> buffers() const { return buffers_; }
  std::span<Buffer> buffers() { return buffers_; }
  std::int64_t total_bytes() const;

 private:
  std::vector<Buffer> buffers_;
};

}  // namespace quire::tools
