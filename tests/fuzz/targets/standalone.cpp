// SPDX-License-Identifier: Apache-2.0
// A fuzz target without libFuzzer, for any compiler: the files of a corpus, then inputs made of them at random.
//   fuzz_validate_standalone --runs 100000 --seed 3 corpus/validate
// The last input stands in ./last_input while it runs where --keep is given.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
// Only targets whose inputs have a grammar bring one.
extern "C" [[gnu::weak]] std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                                             std::size_t capacity, unsigned seed);

namespace {

using Bytes = std::vector<std::uint8_t>;

std::vector<Bytes> read_corpus(const std::filesystem::path& path) {
  std::vector<std::filesystem::path> files;
  if (std::filesystem::is_regular_file(path)) files.push_back(path);
  if (std::filesystem::is_directory(path)) {
    for (const auto& entry : std::filesystem::directory_iterator(path))
      files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<Bytes> inputs;
  for (const std::filesystem::path& file : files) {
    std::ifstream stream(file, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  }
  return inputs;
}

void change_bytes(std::mt19937_64& engine, Bytes& input) {
  for (std::uint64_t changes = 1 + engine() % 4; changes > 0 && !input.empty(); --changes) {
    const auto at = input.begin() + static_cast<std::ptrdiff_t>(engine() % input.size());
    const std::uint64_t kind = engine() % 3;
    if (kind == 0) *at = static_cast<std::uint8_t>(engine());
    if (kind == 1) input.insert(at, static_cast<std::uint8_t>(engine()));
    if (kind == 2) input.erase(at);
  }
}

// By the target's own grammar, several times over.
void change_by_grammar(std::mt19937_64& engine, Bytes& input) {
  constexpr std::size_t kCapacity = 8192;
  for (std::uint64_t changes = 1 + engine() % 3; changes > 0; --changes) {
    const std::size_t size = std::min(input.size(), kCapacity);
    input.resize(kCapacity);
    input.resize(
        LLVMFuzzerCustomMutator(input.data(), size, kCapacity, static_cast<unsigned>(engine())));
  }
}

// Bytes of nothing, or a known input with some of its bytes replaced, added or left out.
Bytes make_input(std::mt19937_64& engine, const std::vector<Bytes>& corpus) {
  Bytes input;
  if (LLVMFuzzerCustomMutator != nullptr && !corpus.empty()) {
    input = corpus[engine() % corpus.size()];
    change_by_grammar(engine, input);
    return input;
  }
  if (corpus.empty() || engine() % 2 == 0) {
    input.resize(engine() % 96);
    for (std::uint8_t& byte : input) byte = static_cast<std::uint8_t>(engine());
    return input;
  }
  input = corpus[engine() % corpus.size()];
  change_bytes(engine, input);
  return input;
}

void keep(const Bytes& input) {
  std::ofstream("last_input", std::ios::binary)
      .write(reinterpret_cast<const char*>(input.data()),
             static_cast<std::streamsize>(input.size()));
}

}  // namespace

// What libFuzzer would do to bytes without a grammar.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size,
                                        std::size_t capacity) {
  Bytes input(data, data + size);
  std::mt19937_64 engine(size);
  change_bytes(engine, input);
  const std::size_t changed = std::min(input.size(), capacity);
  std::copy_n(input.begin(), changed, data);
  return changed;
}

int main(int argc, char** argv) {
  std::uint64_t runs = 0;
  std::uint64_t seed = 1;
  bool keeps = false;
  std::vector<Bytes> corpus;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--runs" && i + 1 < argc) {
      runs = std::strtoull(argv[++i], nullptr, 10);
    } else if (word == "--seed" && i + 1 < argc) {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else if (word == "--keep") {
      keeps = true;
    } else {
      for (Bytes& input : read_corpus(word)) corpus.push_back(std::move(input));
    }
  }
  for (const Bytes& input : corpus) LLVMFuzzerTestOneInput(input.data(), input.size());
  std::mt19937_64 engine(seed);
  for (std::uint64_t run = 0; run < runs; ++run) {
    const Bytes input = make_input(engine, corpus);
    if (keeps) keep(input);
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  std::printf("%zu inputs of the corpus, %llu others: none broke anything\n", corpus.size(),
              static_cast<unsigned long long>(runs));
  return 0;
}
