// SPDX-License-Identifier: Apache-2.0
#include "tools/case/memory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <stdexcept>

namespace quire::tools {
namespace {

// NaN in the float types if it is read, and hardly what a stray store would leave if it is written.
std::byte guard_byte(std::int64_t index) {
  return index % 2 == 0 ? std::byte{0xff} : std::byte{0x7f};
}

std::size_t as_index(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

std::string describe_place(const Buffer& buffer, std::int64_t index) {
  const std::int64_t place = index - buffer.data_offset;
  if (place < 0) return fmt::format("guard byte {} before its start", -place);
  if (place >= buffer.data_bytes) {
    return fmt::format("guard byte {} past its end", place - buffer.data_bytes + 1);
  }
  return fmt::format("byte {} of {}", place, buffer.data_bytes);
}

std::vector<bool> writable_bytes(const Buffer& buffer) {
  std::vector<bool> writable(buffer.storage.size(), false);
  for (const ByteRange& range : buffer.writable) {
    std::fill_n(writable.begin() + range.first, range.count, true);
  }
  return writable;
}

// Far above both limits of a memory, and far below what 64 bits hold.
constexpr std::int64_t kMaxElements = std::int64_t{1} << 48;

// Tensors without elements have strides too: their other sizes count all the same.
std::int64_t count_elements(const std::string& name, DType dtype,
                            std::span<const std::int64_t> shape) {
  std::int64_t strides = 1;
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) {
    if (size < 0 || std::max<std::int64_t>(size, 1) > kMaxElements / strides) {
      throw MemoryError(fmt::format("tensor '{}' cannot be {}[{}]", name, quire::name(dtype),
                                    fmt::join(shape, ", ")));
    }
    strides *= std::max<std::int64_t>(size, 1);
    elements *= size;
  }
  return elements;
}

// Addresses that are nobody else's; to touch them is a fault.
std::shared_ptr<void> reserve_addresses(std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  void* start = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) throw std::bad_alloc();
  return {start, [size](void* range) { munmap(range, size); }};
}

// Copies what is there already, twice as much each time: periods may be of a single byte.
void fill_repeating(std::span<std::byte> target, std::span<const std::byte> period) {
  std::size_t filled = std::min(period.size(), target.size());
  std::copy_n(period.begin(), filled, target.begin());
  while (filled < target.size()) {
    const std::size_t count = std::min(filled, target.size() - filled);
    std::copy_n(target.begin(), count, target.begin() + static_cast<std::ptrdiff_t>(filled));
    filled += count;
  }
}

}  // namespace

std::int64_t Memory::bytes_of(const std::string& name, DType dtype,
                              std::span<const std::int64_t> shape) {
  return bytes_for(dtype, count_elements(name, dtype, shape));
}

void Memory::charge(const std::string& name, std::int64_t count, std::int64_t bytes_each) {
  const std::int64_t left = max_bytes_ - host_bytes_;
  if (count > left / bytes_each) {
    throw MemoryError(fmt::format("'{}' needs {:.6g} bytes, {} of {} are left", name,
                                  static_cast<double>(count) * static_cast<double>(bytes_each),
                                  left, max_bytes_));
  }
  host_bytes_ += count * bytes_each;
}

TensorView Memory::allocate_repeating(const std::string& name, DType dtype,
                                      std::span<const std::int64_t> shape,
                                      std::span<const std::byte> period) {
  const std::int64_t bytes = bytes_of(name, dtype, shape);
  TensorView view = TensorView::contiguous(nullptr, dtype, shape);
  if (!defers(bytes)) {
    view = allocate(name, dtype, shape);
    fill_repeating({view.as<std::byte>(), static_cast<std::size_t>(bytes)}, period);
    return view;
  }
  if (bytes > kMaxDeferredBytes - deferred_bytes_) {
    throw MemoryError(fmt::format("tensor '{}' needs {} bytes, {} of {} are left", name, bytes,
                                  kMaxDeferredBytes - deferred_bytes_, kMaxDeferredBytes));
  }
  deferred_bytes_ += bytes;
  Buffer buffer;
  buffer.name = name;
  buffer.data_bytes = bytes;
  buffer.period.assign(period.begin(), period.end());
  // One byte more: the place past the end belongs to this buffer, too.
  buffer.addresses = reserve_addresses(bytes + 1);
  view.data = buffer.addresses.get();
  buffers_.push_back(std::move(buffer));
  return view;
}

Place Memory::place_of(const void* address) const {
  const auto* byte = static_cast<const std::byte*>(address);
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const std::byte* data = buffers_[i].data();
    if (byte < data || byte > data + buffers_[i].data_bytes) continue;
    return {.buffer = i, .offset = byte - data};
  }
  throw std::logic_error("place_of: this address is in no buffer");
}

TensorView Memory::allocate(const std::string& name, DType dtype,
                            std::span<const std::int64_t> shape) {
  const std::int64_t bytes = bytes_of(name, dtype, shape);
  const std::int64_t storage_bytes = bytes + 2 * kGuardBytes + kAlignment;
  charge(name, storage_bytes, 1);
  TensorView view = TensorView::contiguous(nullptr, dtype, shape);
  Buffer buffer;
  buffer.name = name;
  buffer.data_bytes = bytes;
  buffer.storage.assign(static_cast<std::size_t>(storage_bytes), std::byte{0xff});
  const auto address = reinterpret_cast<std::uintptr_t>(buffer.storage.data()) + kGuardBytes;
  const auto to_boundary =
      static_cast<std::int64_t>((kAlignment - address % kAlignment) % kAlignment);
  buffer.data_offset = kGuardBytes + to_boundary;
  const auto size = static_cast<std::int64_t>(buffer.storage.size());
  for (std::int64_t i = 0; i < buffer.data_offset; ++i) buffer.storage[as_index(i)] = guard_byte(i);
  for (std::int64_t i = buffer.data_offset + buffer.data_bytes; i < size; ++i) {
    buffer.storage[as_index(i)] = guard_byte(i);
  }
  view.data = buffer.storage.data() + buffer.data_offset;
  buffers_.push_back(std::move(buffer));
  return view;
}

void Memory::allow_write(const void* start, std::int64_t bytes) {
  const auto* first = static_cast<const std::byte*>(start);
  for (Buffer& buffer : buffers_) {
    const std::byte* data = buffer.data();
    if (first < data || first + bytes > data + buffer.data_bytes) continue;
    if (buffer.is_deferred()) return;  // never compared
    buffer.writable.push_back({.first = first - buffer.storage.data(), .count = bytes});
    return;
  }
  throw std::logic_error("allow_write: these bytes are in no buffer");
}

void Memory::allow_write(const TensorView& tensor) {
  if (tensor.numel() > 0) allow_write(tensor.data, bytes_for(tensor.dtype, tensor.numel()));
}

Memory::Snapshot Memory::snapshot() const {
  Snapshot result;
  for (const Buffer& buffer : buffers_) result.push_back(buffer.storage);
  return result;
}

void Memory::restore(const Snapshot& snapshot) {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    // In place: the views point into the storage.
    std::copy(snapshot[i].begin(), snapshot[i].end(), buffers_[i].storage.begin());
  }
}

std::vector<std::string> Memory::stray_writes(const Snapshot& before) const {
  std::vector<std::string> lines;
  for (std::size_t b = 0; b < buffers_.size(); ++b) {
    const Buffer& buffer = buffers_[b];
    if (buffer.storage == before[b]) continue;
    const std::vector<bool> writable = writable_bytes(buffer);
    std::int64_t count = 0;
    std::size_t first = 0;
    for (std::size_t i = 0; i < buffer.storage.size(); ++i) {
      if (writable[i] || buffer.storage[i] == before[b][i]) continue;
      if (count++ == 0) first = i;
    }
    if (count == 0) continue;
    std::string line = fmt::format(
        "wrote '{}' where it may not: {}, {:#04x} became {:#04x}", buffer.name,
        describe_place(buffer, static_cast<std::int64_t>(first)),
        static_cast<unsigned>(before[b][first]), static_cast<unsigned>(buffer.storage[first]));
    if (count > 1) line += fmt::format(" (and {} bytes more)", count - 1);
    lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> Memory::differences(const Snapshot& other) const {
  std::vector<std::string> names;
  for (std::size_t b = 0; b < buffers_.size(); ++b) {
    if (buffers_[b].storage != other[b]) names.push_back(buffers_[b].name);
  }
  return names;
}

std::int64_t Memory::total_bytes() const {
  std::int64_t sum = 0;
  for (const Buffer& buffer : buffers_) sum += buffer.data_bytes;
  return sum;
}

}  // namespace quire::tools
