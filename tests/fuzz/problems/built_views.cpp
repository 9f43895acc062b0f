// SPDX-License-Identifier: Apache-2.0
#include "fuzz/problems/built_views.h"

#include <algorithm>

namespace quire::test {
namespace {

bool is_same(const TensorView& a, const TensorView& b) {
  return a.data == b.data && a.rank == b.rank && a.shape == b.shape && a.strides == b.strides;
}

}  // namespace

std::vector<NamedView> views_of(const tools::Built& built) {
  std::vector<NamedView> views;
  const auto visit = [&](const TensorView& view) {
    const bool is_known = std::ranges::any_of(
        views, [&](const NamedView& known) { return is_same(known.view, view); });
    if (view.numel() > 0 && !is_known) {
      const tools::Place place = built.memory.place_of(view.data);
      views.push_back({.name = built.memory.buffers()[place.buffer].name, .view = view});
    }
    return view;
  };
  static_cast<void>(built.relocated(visit));
  return views;
}

const TensorView* find_view(const std::vector<NamedView>& views, const std::string& name) {
  const auto found = std::ranges::find(views, name, &NamedView::name);
  return found == views.end() ? nullptr : &found->view;
}

}  // namespace quire::test
