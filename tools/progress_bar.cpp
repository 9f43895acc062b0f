// SPDX-License-Identifier: Apache-2.0
#include "tools/progress_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace quire::tools {

ProgressBar::ProgressBar(std::size_t total)
    : total_(total), is_visible_(total > 0 && isatty(fileno(stderr)) != 0) {}

void ProgressBar::show(std::size_t done, const std::string& label) const {
  if (!is_visible_) return;
  constexpr int kWidth = 30;
  const auto filled = static_cast<int>(kWidth * done / total_);
  std::fputs(fmt::format("\r\033[K[{:#<{}}{:.<{}}] {}/{} {}", "", filled, "", kWidth - filled, done,
                         total_, label)
                 .c_str(),
             stderr);
  std::fflush(stderr);
}

void ProgressBar::clear() const {
  if (is_visible_) std::fputs("\r\033[K", stderr);
}

}  // namespace quire::tools
