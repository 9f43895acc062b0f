// SPDX-License-Identifier: Apache-2.0
// One small valid problem per op, and per form of it that has checks of its own. Tests mutate one
// thing and look.
//
// All of them share a batch: sequence 0 has 3 cached and 2 new tokens, sequence 1 none cached and 3
// new ones; pages of 4 tokens. The page table ends in entries that no key needs, one of them a
// number that is no page.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "ops/arena.h"
#include "quire/quire.h"

namespace quire::test {

inline constexpr std::int64_t kTokens = 5;
inline constexpr std::int64_t kBatch = 2;
inline constexpr std::int64_t kLayer = 1;  // of two

struct Sample {
  virtual ~Sample() = default;
  virtual void run(const Context& context) = 0;
  // What the op decided.
  virtual Plan supports(const Context& context) = 0;
  // A kernel for the arguments as they are now, for calls with what they will be then.
  using Call = std::function<void(const Context& context)>;
  virtual Call prepare(const Context& context) = 0;
  // Every view of the arguments, by the name that errors use.
  virtual std::vector<std::pair<std::string, TensorView*>> tensors() = 0;
  // Names of the ones that the op writes.
  virtual std::vector<std::string> written() const = 0;

  TensorView& tensor(const std::string& name);
  // Views of a GPU's memory, at addresses where a host that reads them dies.
  void move_to_gpu(int index = 0);

  Arena arena{};
  std::string op{};
};

// `args` outlives the call.
template <typename Args> Sample::Call prepared_call(const Args& args, const Context& context) {
  return [&args, prepared = quire::prepare(validate(args), context)](const Context& given) {
    quire::run(prepared, args, given);
  };
}

struct CacheForm {
  DType dtype = DType::f32;
  std::int64_t kv = 2;
  std::int64_t heads = 2;
  std::int64_t row = 8;
  std::int64_t slots = 0;  // 0: no scales
};
PagedKVCache make_cache(Arena& arena, const CacheForm& form);
TensorView make_row_offsets(Arena& arena);

// The views of a cache, scales included where there are some.
void list_cache(PagedKVCache& cache, const std::string& name,
                std::vector<std::pair<std::string, TensorView*>>& list);

using MakeSample = std::function<std::unique_ptr<Sample>()>;
struct NamedSample {
  std::string name;
  MakeSample make;
};
inline std::ostream& operator<<(std::ostream& stream, const NamedSample& sample) {
  return stream << sample.name;
}
// All of sample_*.h.
const std::vector<NamedSample>& all_samples();

}  // namespace quire::test
