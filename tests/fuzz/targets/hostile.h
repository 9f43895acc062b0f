// SPDX-License-Identifier: Apache-2.0
// Arguments that no caller would give on purpose: one field after another of a valid call becomes what was drawn.
// Addresses stay honest, as SECURITY.md asks of callers: a tensor on the host has the bytes that its sizes and strides
// reach, or no address at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "fuzz/problems/draw.h"
#include "fuzz/targets/arguments.h"

namespace quire::test {

// Memory behind tensors: what the valid calls brought, by address, and exact blocks for those that outgrow it.
class Grounds {
 public:
  void add(const TensorView& view);
  // Gives a tensor on the host memory that it may have, or none.
  void ground(TensorView& view);
  // A copy of the tensor with a number of its own choice in it; small tensors only.
  void change_contents(Draw& draw, TensorView& view);
  void forget() { blocks_.clear(); }

 private:
  void* allocate(std::int64_t bytes);

  std::unordered_map<const void*, std::int64_t> known_{};
  std::deque<std::vector<std::byte>> blocks_{};
};

std::int64_t hostile_integer(Draw& draw);
double hostile_number(Draw& draw);

void spoil(Draw& draw, Grounds& grounds, TensorView& view);
void spoil(Draw& draw, RowFormat& format);
void spoil(Draw& draw, Mask& mask);

template <typename T> constexpr bool kHasFields = requires(T& value) {
  for_fields(value, [](auto&) {});
};

// Counts the fields down to plain ones, and spoils the one whose number is asked for.
class Spoiler {
 public:
  Spoiler(Draw& draw, Grounds& grounds, std::int64_t number)
      : draw_(draw), grounds_(grounds), left_(number) {}

  template <typename Field> void operator()(Field& field) {
    if constexpr (kHasFields<Field>) {
      for_fields(field, *this);
    } else if (left_-- == 0) {
      change(field);
    }
  }
  // Whether there is one counts as a field, too.
  template <typename Field> void operator()(std::optional<Field>& field) {
    if (left_-- != 0) {
      if (field.has_value()) (*this)(*field);
      return;
    }
    if (field.has_value()) {
      field.reset();
      return;
    }
    field.emplace();
    if constexpr (!kHasFields<Field>) change(*field);
  }

 private:
  void change(TensorView& view) { spoil(draw_, grounds_, view); }
  void change(RowFormat& format) { spoil(draw_, format); }
  void change(Mask& mask) { spoil(draw_, mask); }
  void change(bool& flag) { flag = !flag; }
  void change(double& number) { number = hostile_number(draw_); }
  void change(std::vector<std::int64_t>& list) {
    list.resize(static_cast<std::size_t>(draw_.below(5)));
    for (std::int64_t& value : list) value = hostile_integer(draw_);
  }
  template <typename Integer> void change(Integer& value) {
    if constexpr (std::is_enum_v<Integer>) {
      value = static_cast<Integer>(draw_.below(count_of(value)));
    } else {
      value = static_cast<Integer>(hostile_integer(draw_));
    }
  }
  static std::int64_t count_of(DType) { return 12; }
  static std::int64_t count_of(WeightFormat) { return 10; }
  static std::int64_t count_of(WeightPacking) { return 6; }
  template <typename Enum> static std::int64_t count_of(Enum) { return 2; }

  Draw& draw_;
  Grounds& grounds_;
  std::int64_t left_;
};

// body(view) of every tensor of the arguments, those of masks left out.
template <typename Args, typename Body> void for_tensors(Args& args, const Body& body) {
  for_fields(args, [&](auto& field) {
    using Field = std::remove_reference_t<decltype(field)>;
    if constexpr (std::is_same_v<Field, TensorView>) {
      body(field);
    } else if constexpr (std::is_same_v<Field, std::optional<TensorView>>) {
      if (field.has_value()) body(*field);
    } else if constexpr (std::is_same_v<Field, std::optional<SparseExtra>>) {
      if (field.has_value()) for_tensors(*field, body);
    } else if constexpr (kHasFields<Field>) {
      for_tensors(field, body);
    }
  });
}

// Views of a GPU's memory, at addresses where a host that reads them dies.
template <typename Args> void move_to_gpu(Args& args, int index) {
  std::uintptr_t address = 0;
  for_tensors(args, [&](TensorView& view) {
    view.device = {.kind = DeviceKind::cuda, .index = index};
    view.data = reinterpret_cast<void*>(address += std::uintptr_t{1} << 40);
  });
}

}  // namespace quire::test
