// SPDX-License-Identifier: Apache-2.0
// Horizontal bars as an SVG picture.
#pragma once

#include <string>
#include <vector>

namespace quire::tools {

struct Bar {
  std::string label;
  double value = 0.0;
  std::string text;  // printed behind the bar
};

// Bars are drawn to the largest value. The text is XML; labels may hold any characters.
std::string draw_bar_chart(const std::string& title, const std::vector<Bar>& bars);

}  // namespace quire::tools
