// SPDX-License-Identifier: Apache-2.0
#include "tools/text_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace quire::tools {
namespace {

[[noreturn]] void fail(const std::string& what, const std::string& why) {
  throw std::runtime_error(fmt::format("{}: {}", what, why));
}

// Closes what it opened.
class Descriptor {
 public:
  // O_NONBLOCK: to open a pipe that nobody writes to must not wait either.
  explicit Descriptor(const std::string& path)
      : number_(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  int number() const { return number_; }

 private:
  int number_;
};

}  // namespace

std::string read_text_file(const std::string& path, std::int64_t max_bytes) {
  const Descriptor file(path);
  if (file.number() < 0) fail(path, fmt::format("cannot be read: {}", std::strerror(errno)));
  struct stat status {};
  if (fstat(file.number(), &status) != 0 || !S_ISREG(status.st_mode)) {
    fail(path, "must be a regular file");
  }
  std::string text;
  std::array<char, 1 << 16> chunk{};
  while (true) {
    const ssize_t count = read(file.number(), chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(path, fmt::format("cannot be read: {}", std::strerror(errno)));
    if (count == 0) return text;
    text.append(chunk.data(), static_cast<std::size_t>(count));
    if (static_cast<std::int64_t>(text.size()) > max_bytes) {
      fail(path, fmt::format("must have at most {} bytes", max_bytes));
    }
  }
}

nlohmann::json parse_json(std::string_view text, int max_nesting) {
  const auto limit_nesting = [max_nesting](int depth, nlohmann::json::parse_event_t,
                                           nlohmann::json&) {
    if (depth <= max_nesting) return true;
    throw std::runtime_error(
        fmt::format("lists and objects must be nested at most {} deep", max_nesting));
  };
  try {
    return nlohmann::json::parse(text, limit_nesting);
  } catch (const nlohmann::json::exception& problem) {
    throw std::runtime_error(shorten(problem.what(), 400));
  }
}

std::string shorten(std::string text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  return fmt::format("{}… ({} bytes)", text.substr(0, max_bytes), text.size());
}

void flush_stdout() {
  const bool flushed = std::fflush(stdout) == 0;
  const int reason = errno;
  if (!flushed)
    fail("standard output", fmt::format("cannot be written: {}", std::strerror(reason)));
  if (std::ferror(stdout) != 0) fail("standard output", "cannot be written");
}

OutputFile::OutputFile(std::string path)
    : path_(std::move(path)), file_(std::fopen(path_.c_str(), "we")) {
  if (!file_) fail(path_, fmt::format("cannot be written: {}", std::strerror(errno)));
}

void OutputFile::write(std::string_view text) {
  if (!file_) return;
  const bool written = std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size() &&
                       std::fflush(file_.get()) == 0;
  if (!written) fail(path_, fmt::format("cannot be written: {}", std::strerror(errno)));
}

}  // namespace quire::tools
