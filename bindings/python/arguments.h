// SPDX-License-Identifier: Apache-2.0
// Keyword arguments of one call → the fields of an op's argument struct. The tensors stay borrowed
// until the reader goes.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "quire/context.h"
#include "quire/error.h"
#include "quire/mask.h"
#include "quire/ops/mla_prefill.h"
#include "quire/ops/rms_norm.h"
#include "quire/paged_kv_cache.h"
#include "quire/weight.h"
#include "scalars.h"
#include "tensor.h"

namespace quire::python {

class ArgumentReader {
 public:
  // `op` and the names given to the members are literals, or live as long. What is the very object that `known` has read
  // for the same access is not read again.
  ArgumentReader(std::string_view op, nanobind::dict arguments, void* stream,
                 const ArgumentReader* known = nullptr)
      : op_(op), arguments_(std::move(arguments)), stream_(stream), known_(known) {
    constexpr std::size_t kUsualTensors = 16;
    borrowed_.reserve(kUsualTensors);
  }

  TensorView tensor(const char* name, Access access = Access::read) {
    return borrow(find(name), at(name), access);
  }
  std::optional<TensorView> optional_tensor(const char* name, Access access = Access::read) {
    return optional_borrow(find(name), at(name), access);
  }
  // Counts and page ids, u32. Frameworks without good u32 support pass i32: the same bits, with -1
  // for "no page".
  TensorView indices(const char* name, Access access = Access::read) {
    return as_unsigned(borrow(find(name), at(name), access));
  }
  std::optional<TensorView> optional_indices(const char* name);

  // A number, a flag or a name.
  template <typename T> T value(const char* name) const { return cast<T>(find(name), at(name)); }
  template <typename T> std::optional<T> optional_value(const char* name) const {
    const nanobind::object object = find(name);
    if (object.is_none()) return std::nullopt;
    return cast<T>(object, at(name));
  }

  // A quire.PagedKVCache; `access` says whether the op writes rows (and scales).
  PagedKVCache cache(const char* name, Access access);
  Mask mask(const char* name);  // a str or a quire.Mask
  // `weight`, `weight_scale` and `quant`.
  Weight weight();
  KvSide side() const;
  std::vector<std::int64_t> whole_numbers(const char* name) const {
    return python::whole_numbers(find(name), at(name));
  }
  MlaPrefillChunks chunks(const char* name, Access access);

  bool is_given(const char* name) const { return arguments_.contains(interned(name)); }
  nanobind::object find(const char* name) const {
    PyObject* found = PyDict_GetItemWithError(arguments_.ptr(), interned(name).ptr());
    if (found == nullptr && PyErr_Occurred() != nullptr) throw nanobind::python_error();
    return found == nullptr ? nanobind::none() : nanobind::borrow(found);
  }

 private:
  Place at(const char* argument, const char* field = "") const { return {op_, argument, field}; }
  const BorrowedTensor& borrow_tensor(nanobind::handle object, const Place& place, Access access);
  TensorView borrow(nanobind::handle object, const Place& place, Access access);
  std::optional<TensorView> optional_borrow(nanobind::handle object, const Place& place,
                                            Access access);
  void borrow_scales(nanobind::handle object, const Place& place, Access access,
                     PagedKVCache& cache);
  static TensorView as_unsigned(TensorView view);
  // `budget`: nodes that the mask may still have.
  Mask read_mask(nanobind::handle object, const char* argument, std::int32_t& budget);

  template <typename T> static T cast(nanobind::handle object, const Place& place) {
    if constexpr (std::is_same_v<T, bool>) {
      return flag(object, place);
    } else if constexpr (std::is_floating_point_v<T>) {
      return static_cast<T>(number(object, place));
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(whole_number(
          object, place, {std::numeric_limits<T>::min(), std::numeric_limits<T>::max()}));
    } else {
      static_assert(std::is_same_v<T, std::string>);
      return text(object, place);
    }
  }

  std::string_view op_;
  nanobind::dict arguments_;
  void* stream_;
  const ArgumentReader* known_;
  std::vector<BorrowedTensor> borrowed_;
};

}  // namespace quire::python
