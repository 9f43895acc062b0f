// SPDX-License-Identifier: Apache-2.0
// A packed weight together with the memory it views: what quire.pack_weight returns.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <memory>

#include "quire/pack_weight.h"

namespace quire::python {

class PackedWeight {
 public:
  PackedWeight(const Weight& weight, const Context& context);
  // Into an array of the caller's, on the weight's device; it stays as long as this.
  PackedWeight(const Weight& weight, const TensorView& storage, nanobind::object owner,
               const Context& context);

  // From bytes or an array that hold such a weight already; `form` says which, but for addresses.
  PackedWeight(const Weight& form, nanobind::handle storage);

  const Weight& view() const { return view_; }
  // A copy of the bytes, or the caller's array.
  nanobind::object storage() const;

 private:
  // Memory of the object's own, on the border of a huge page.
  TensorView allocate(std::int64_t bytes);

  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> storage_;
  nanobind::object owner_;
  Weight view_;
};

}  // namespace quire::python
