// SPDX-License-Identifier: Apache-2.0
// Checks that read like the sentences they throw. An op names its arguments in reading order:
//
//   Arguments check("flash_attention");
//   check.tensor("q", args.q).is(kActivations, {"tokens", "heads", "head_dim"}).has_dense_rows();
//   check.tensor("lse", *args.lse).is(DType::f32, {tokens, heads}).is_written();
//   check.outputs_do_not_overlap();
//
// The first tensor decides the device that all others must be on. Nothing here writes, and values
// are read only where they are on the host. Every call of an op comes through here: checks that pass
// compare numbers, allocate one list and make no text.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quire/error.h"
#include "quire/tensor_view.h"

namespace quire::ops {

inline constexpr DType kActivations[] = {DType::f32, DType::f16, DType::bf16};
inline constexpr DType kFp8Types[] = {DType::fp8_e4m3, DType::fp8_e5m2};
inline constexpr DType kFloats[] = {DType::f32, DType::f16, DType::bf16, DType::fp8_e4m3,
                                    DType::fp8_e5m2};

inline bool is_on_host(const TensorView& view) {
  return view.device.kind == DeviceKind::cpu;
}

// One size of an expected shape: a number, or the name of a size that this argument is free to
// choose.
struct Extent {
  Extent(std::int64_t expected) : size(expected) {}   // NOLINT: {tokens, "heads"} should read so
  Extent(const char* free_size) : name(free_size) {}  // NOLINT

  std::int64_t size = -1;
  const char* name = nullptr;
};

// What errors call an argument, or a field of one: {"cache", "blocks"} is cache.blocks. Of literals,
// which are joined only where an error is thrown.
struct ArgumentName {
  ArgumentName(const char* name) : field(name) {}  // NOLINT: check.tensor("q", args.q)
  ArgumentName(const char* owner_name, const char* field_name)
      : owner(owner_name), field(field_name) {}

  std::string text() const;

  const char* owner = nullptr;  // null: the field is an argument itself
  const char* field;
};

class Arguments;

// A tensor argument under examination. It lives inside one statement.
class TensorArgument {
 public:
  // Dtype, rank, sizes, size in bytes, data, alignment and device.
  const TensorArgument& is(std::span<const DType> dtypes,
                           std::initializer_list<Extent> shape) const;
  const TensorArgument& is(DType dtype, std::initializer_list<Extent> shape) const {
    return is(std::span(&dtype, 1), shape);
  }
  const TensorArgument& has_dense_rows() const;  // the last dimension has stride 1
  const TensorArgument& has_full_rows() const;   // every size after the first is at least 1
  // An output: elements do not share memory, by a stride of 0 or by one that is shorter than what it
  // steps over.
  const TensorArgument& is_written() const;
  // Every value, if it is on the host. For scales: f32, f16 and bf16.
  const TensorArgument& is_finite() const;

 private:
  friend class Arguments;
  TensorArgument(Arguments& owner, ArgumentName name, const TensorView& view)
      : owner_(owner), name_(name), view_(view) {}

  bool matches(std::initializer_list<Extent> shape) const;
  std::int64_t check_memory() const;  // and the bytes from its first to its last element
  [[noreturn]] void fail(const std::string& expected) const;

  Arguments& owner_;
  ArgumentName name_;
  const TensorView& view_;
};

class Arguments {
 public:
  explicit Arguments(std::string_view op) : op_(op) {}

  // Both, and the view, outlive the checks.
  TensorArgument tensor(ArgumentName name, const TensorView& view) { return {*this, name, view}; }
  TensorArgument tensor(ArgumentName name, TensorView&& view) = delete;

  void is_finite(ArgumentName name, double value) const;
  void is_positive(ArgumentName name, double value) const;  // and finite
  void is_at_least(ArgumentName name, std::int64_t value, std::int64_t lowest) const;
  void is_index(ArgumentName name, std::int64_t value, std::int64_t size) const;

  // No output shares memory with another argument. The pairs named may be one and the same view.
  using Pair = std::pair<std::string_view, std::string_view>;
  void outputs_do_not_overlap(std::initializer_list<Pair> may_be_same = {}) const;

  [[noreturn]] void fail(ArgumentName name, std::string expected, std::string actual) const;
  [[noreturn]] void fail_type(ArgumentName name, std::string expected, std::string actual) const;

  Device device() const { return seen_.empty() ? Device{} : seen_.front().view->device; }

 private:
  friend class TensorArgument;
  struct Seen {
    Seen(ArgumentName argument, const TensorView& tensor, std::int64_t span)
        : name(argument),
          view(&tensor),
          address(reinterpret_cast<std::uintptr_t>(tensor.data)),
          bytes(static_cast<std::uintptr_t>(span)) {}

    bool may_meet(const Seen& other) const {
      return other.address - address < bytes || address - other.address < other.bytes;
    }

    ArgumentName name;
    const TensorView* view;
    std::uintptr_t address;
    std::uintptr_t bytes;  // from its first to its last element
    bool is_written = false;
  };
  void remember(ArgumentName name, const TensorView& view, std::int64_t span);

  std::string_view op_;
  std::vector<Seen> seen_{};
};

}  // namespace quire::ops
