// SPDX-License-Identifier: Apache-2.0
// A packed weight together with the memory it views: what quire.pack_weight returns.
#pragma once

#include <cstddef>
#include <memory>

#include "quire/pack_weight.h"

namespace quire::python {

class PackedWeight {
 public:
  PackedWeight(const Weight& weight, const Context& context);

  const Weight& view() const { return view_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> storage_;
  Weight view_;
};

}  // namespace quire::python
