// SPDX-License-Identifier: Apache-2.0
// How far a command is, on stderr where that is a terminal.
#pragma once

#include <cstddef>
#include <string>

namespace quire::tools {

class ProgressBar {
 public:
  explicit ProgressBar(std::size_t total);
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar() { clear(); }

  // Before a case begins.
  void show(std::size_t done, const std::string& label) const;
  // Before its line is printed: both may be on one terminal.
  void clear() const;

 private:
  std::size_t total_;
  bool is_visible_;
};

}  // namespace quire::tools
