// SPDX-License-Identifier: Apache-2.0
// Keyword arguments of one call → the fields of an op's argument struct. The tensors stay borrowed
// until the reader goes.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "quire/context.h"
#include "quire/error.h"
#include "quire/mask.h"
#include "quire/ops/mla_prefill.h"
#include "quire/ops/rms_norm.h"
#include "quire/paged_kv_cache.h"
#include "quire/weight.h"
#include "tensor.h"

namespace quire::python {

class ArgumentReader {
 public:
  ArgumentReader(std::string op, nanobind::dict arguments, void* stream)
      : op_(std::move(op)), arguments_(std::move(arguments)), stream_(stream) {}

  TensorView tensor(const char* name, Access access = Access::read) {
    return borrow(find(name), name, access);
  }
  std::optional<TensorView> optional_tensor(const char* name, Access access = Access::read) {
    return optional_borrow(find(name), name, access);
  }
  // Counts and page ids, u32. Frameworks without good u32 support pass i32: the same bits, with -1
  // for "no page".
  TensorView indices(const char* name, Access access = Access::read) {
    return as_unsigned(borrow(find(name), name, access));
  }
  std::optional<TensorView> optional_indices(const char* name);

  // A number or flag. `expected` completes "'argument' must be …".
  template <typename T> T value(const char* name, std::string_view expected = "a number") const {
    return cast<T>(find(name), name, expected);
  }
  template <typename T>
  std::optional<T> optional_value(const char* name, std::string_view expected = "a number") const {
    const nanobind::object object = find(name);
    if (object.is_none()) return std::nullopt;
    return cast<T>(object, name, expected);
  }

  // A quire.PagedKVCache; `access` says whether the op writes rows (and scales).
  PagedKVCache cache(const char* name, Access access);
  Mask mask(const char* name);  // a str or a quire.Mask
  // `weight`, `weight_scale` and `quant`.
  Weight weight();
  KvSide side() const;
  MlaPrefillChunks chunks(const char* name, Access access);

  nanobind::object find(const char* name) const {
    return arguments_.contains(name) ? nanobind::borrow(arguments_[name]) : nanobind::none();
  }

 private:
  TensorView borrow(nanobind::handle object, const std::string& argument, Access access);
  std::optional<TensorView> optional_borrow(nanobind::handle object, const std::string& argument,
                                            Access access);
  std::optional<TensorView> borrow_scales(nanobind::handle object, const std::string& argument,
                                          Access access);
  static TensorView as_unsigned(TensorView view);
  Mask read_mask(nanobind::handle object, const std::string& argument);
  [[noreturn]] void refuse(ErrorCode code, const std::string& argument, std::string_view expected,
                           nanobind::handle actual) const;

  // numpy's whole numbers and floats as Python's own.
  template <typename T> static nanobind::object plain(nanobind::handle object) {
    PyObject* number = nullptr;
    if constexpr (std::is_same_v<T, bool>) return nanobind::borrow(object);
    if constexpr (std::is_integral_v<T>) number = PyNumber_Index(object.ptr());
    if constexpr (std::is_floating_point_v<T>) {
      if (PyNumber_Check(object.ptr()) != 0) number = PyNumber_Float(object.ptr());
    }
    PyErr_Clear();
    return number == nullptr ? nanobind::borrow(object) : nanobind::steal(number);
  }
  template <typename T>
  T cast(nanobind::handle object, const std::string& argument, std::string_view expected) const {
    T result{};
    if (!nanobind::try_cast(plain<T>(object), result)) {
      refuse(ErrorCode::invalid_type, argument, expected, object);
    }
    return result;
  }

  std::string op_;
  nanobind::dict arguments_;
  void* stream_;
  std::deque<BorrowedTensor> borrowed_;
};

}  // namespace quire::python
