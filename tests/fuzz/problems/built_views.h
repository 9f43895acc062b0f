// SPDX-License-Identifier: Apache-2.0
// The tensors that a built problem hands to its op, by the names of their memory.
#pragma once

#include <string>
#include <vector>

#include "tools/case/built.h"

namespace quire::test {

struct NamedView {
  std::string name;
  TensorView view;
};

// Each tensor once, in the order of the op's arguments; without tensors that have no elements.
std::vector<NamedView> views_of(const tools::Built& built);

const TensorView* find_view(const std::vector<NamedView>& views, const std::string& name);

}  // namespace quire::test
