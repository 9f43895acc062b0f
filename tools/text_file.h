// SPDX-License-Identifier: Apache-2.0
// Files and the standard output of the commands, with every failure told: what cannot be read or written is a
// std::runtime_error that names it and why.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace quire::tools {

// A regular file (a pipe would wait for its writer for ever, a device might not end) of at most so many bytes.
std::string read_text_file(const std::string& path, std::int64_t max_bytes);

// JSON whose lists and objects are nested at most `max_nesting` deep, so that no later walk over it exhausts the stack.
nlohmann::json parse_json(std::string_view text, int max_nesting);

// A text that came with a file, cut where it would fill a screen.
std::string shorten(std::string text, std::size_t max_bytes = 160);

// What has been printed is out.
void flush_stdout();

// A file that is opened before the work begins, and has every line as soon as it is written.
class OutputFile {
 public:
  OutputFile() = default;  // writes nothing
  explicit OutputFile(std::string path);

  void write(std::string_view text);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace quire::tools
