// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/bar_chart.h"

#include <fmt/format.h>

#include <algorithm>

namespace quire::tools {
namespace {

constexpr int kLabelWidth = 380;
constexpr int kBarWidth = 420;
constexpr int kTextWidth = 200;
constexpr int kRowHeight = 22;
constexpr int kTop = 44;

std::string escape(const std::string& text) {
  std::string escaped;
  for (const char letter : text) {
    switch (letter) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      default:
        escaped += letter;
    }
  }
  return escaped;
}

}  // namespace

std::string draw_bar_chart(const std::string& title, const std::vector<Bar>& bars) {
  double largest = 0.0;
  for (const Bar& bar : bars) largest = std::max(largest, bar.value);
  const int width = kLabelWidth + kBarWidth + kTextWidth;
  const int height = kTop + kRowHeight * static_cast<int>(bars.size()) + 12;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"12\" y=\"24\" font-size=\"15\">{}</text>\n",
      width, height, escape(title));
  int y = kTop;
  for (const Bar& bar : bars) {
    const double length = largest > 0.0 ? kBarWidth * bar.value / largest : 0.0;
    svg += fmt::format(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n"
        "<rect x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" fill=\"#4477aa\"/>\n"
        "<text x=\"{:.1f}\" y=\"{}\">{}</text>\n",
        kLabelWidth - 8, y + 15, escape(bar.label), kLabelWidth, y + 3, length, kRowHeight - 6,
        kLabelWidth + length + 6, y + 15, escape(bar.text));
    y += kRowHeight;
  }
  return svg + "</svg>\n";
}

}  // namespace quire::tools
