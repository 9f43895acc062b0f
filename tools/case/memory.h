// SPDX-License-Identifier: Apache-2.0
// The memory of one built problem: named buffers, each between guard bytes, and a note of which
// bytes the op may write. Everything else must be the same afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "quire/tensor_view.h"
#include "tools/case/limits.h"

namespace quire::tools {

struct ByteRange {
  std::int64_t first;  // from the start of the storage, guards included
  std::int64_t count;
};

// Where large tensors are: in host memory, or nowhere yet. A deferred buffer has an address that
// nobody may dereference and a run of bytes that its contents repeat; who copies the problem to a
// device fills it there.
enum class Backing : std::uint8_t { host, deferred };

struct Buffer {
  std::string name;
  std::vector<std::byte> storage;  // padding, guard, data, guard; deferred: empty
  std::int64_t data_offset = 0;
  std::int64_t data_bytes = 0;
  std::vector<ByteRange> writable{};
  std::vector<std::byte> period{};    // deferred: the data repeats these bytes
  std::shared_ptr<void> addresses{};  // deferred: a reserved range, without memory behind it

  bool is_deferred() const { return addresses != nullptr; }
  const std::byte* data() const {
    return is_deferred() ? static_cast<const std::byte*>(addresses.get())
                         : storage.data() + data_offset;
  }
};

// A problem that is larger than it may be: names the tensor, its size and the limit.
class MemoryError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A byte of a memory, wherever the memory is.
struct Place {
  std::size_t buffer = 0;
  std::int64_t offset = 0;  // from the start of the buffer's data
};

class Memory {
 public:
  static constexpr std::int64_t kGuardBytes = 256;
  static constexpr std::int64_t kAlignment = 256;
  static constexpr std::int64_t kDeferredBytes = 1 << 20;  // smaller buffers are always filled

  // max_bytes: of all that is on the host. Past it, allocations throw MemoryError and allocate nothing.
  explicit Memory(Backing backing = Backing::host, std::int64_t max_bytes = max_case_bytes())
      : backing_(backing), max_bytes_(max_bytes) {}

  // The bytes of a tensor; MemoryError where a size is negative or their product is out of reach.
  static std::int64_t bytes_of(const std::string& name, DType dtype,
                               std::span<const std::int64_t> shape);
  // Counts what a builder holds beside its tensors, before it allocates it.
  void charge(const std::string& name, std::int64_t count, std::int64_t bytes_each);

  // A row-major tensor; its bytes start as 0xff, which is NaN in every float type.
  TensorView allocate(const std::string& name, DType dtype, std::span<const std::int64_t> shape);
  TensorView allocate(const std::string& name, DType dtype,
                      std::initializer_list<std::int64_t> shape) {
    return allocate(name, dtype, std::span(shape.begin(), shape.size()));
  }
  // The same with contents that repeat a run of bytes: deferred where the memory is and the tensor
  // is large.
  TensorView allocate_repeating(const std::string& name, DType dtype,
                                std::span<const std::int64_t> shape,
                                std::span<const std::byte> period);
  TensorView allocate_repeating(const std::string& name, DType dtype,
                                std::initializer_list<std::int64_t> shape,
                                std::span<const std::byte> period) {
    return allocate_repeating(name, dtype, std::span(shape.begin(), shape.size()), period);
  }
  bool defers(std::int64_t bytes) const {
    return backing_ == Backing::deferred && bytes >= kDeferredBytes;
  }
  bool is_deferred(const void* address) const {
    return buffers_[place_of(address).buffer].is_deferred();
  }
  // The buffer that an address of a tensor is in, one past its last byte included (a tensor without
  // elements). Throws std::logic_error if there is none.
  Place place_of(const void* address) const;

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
  Backing backing_;
  std::int64_t max_bytes_;
  std::int64_t host_bytes_ = 0;
  std::int64_t deferred_bytes_ = 0;
  std::vector<Buffer> buffers_;
};

}  // namespace quire::tools
