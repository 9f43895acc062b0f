// SPDX-License-Identifier: Apache-2.0
#include "tools/case/key_blocks.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "tools/case/random_stream.h"

namespace quire::tools {
namespace {

// One block from each of as many bins of [0, blocks), the last block among them: distinct and ascending.
void choose(std::span<std::int32_t> list, std::int64_t blocks, std::uint64_t seed) {
  const auto count = std::min<std::int64_t>(std::ssize(list), blocks);
  for (std::int64_t slot = 0; slot < count; ++slot) {
    const std::int64_t first = slot * blocks / count;
    const std::int64_t size = (slot + 1) * blocks / count - first;
    const std::int64_t offset =
        slot + 1 == count ? size - 1 : integer_at(seed, static_cast<std::uint64_t>(slot), size);
    list[static_cast<std::size_t>(slot)] = static_cast<std::int32_t>(first + offset);
  }
}

// From [0, blocks + 3), so that some are past the end, in any order; one entry in four is taken out.
void scatter(std::span<std::int32_t> list, std::int64_t blocks, std::uint64_t seed) {
  choose(list, blocks + 3, seed);
  for (std::size_t slot = list.size(); slot > 1; --slot) {
    const auto other = integer_at(seed, 2000 + slot, static_cast<std::int64_t>(slot));
    std::swap(list[slot - 1], list[static_cast<std::size_t>(other)]);
  }
  for (std::size_t slot = 0; slot < list.size(); ++slot) {
    const std::int64_t kind = integer_at(seed, 1000000 + slot, 12);
    if (kind < 2) list[slot] = -1;
    if (kind == 2) list[slot] = std::numeric_limits<std::int32_t>::min();
  }
}

}  // namespace

double KeyBlockSpec::total_keys(const Lengths& lengths) const {
  if (lists == "none") return 0.0;
  double total = 0.0;
  for (std::int64_t b = 0; b < lengths.batch(); ++b) {
    const auto s = static_cast<std::size_t>(b);
    for (std::int64_t i = 0; i < lengths.added[s]; ++i) {
      const std::int64_t seen = std::min(lengths.cached[s] + i + 1, lengths.keys(b));
      const std::int64_t blocks = std::max<std::int64_t>(0, (seen + block_size - 1) / block_size);
      const std::int64_t missing = blocks * block_size - seen;  // of the last block
      if (blocks > 0) {
        total += static_cast<double>(std::min(max_blocks, blocks) * block_size - missing);
      }
    }
  }
  return total;
}

std::optional<KeyBlockSpec> read_key_blocks(const Fields& fields) {
  if (!fields.has("key_blocks")) return std::nullopt;
  const Fields own = fields.object("key_blocks");
  KeyBlockSpec spec{.max_blocks = own.integer("max_blocks", 1),
                    .block_size = own.integer("block_size", 1),
                    .lists = own.choice("lists", {"chosen", "hostile", "none"}, "chosen")};
  own.finish();
  return spec;
}

TensorView build_key_blocks(Memory& memory, const KeyBlockSpec& spec, const Lengths& lengths,
                            std::int64_t kv_heads, std::uint64_t seed) {
  const TensorView tensor =
      memory.allocate("key_blocks", DType::i32, {lengths.tokens(), kv_heads, spec.max_blocks});
  auto* list = tensor.as<std::int32_t>();
  const std::uint64_t stream = seed_of("key_blocks", seed);
  const auto size = static_cast<std::size_t>(spec.max_blocks);
  for (std::int64_t b = 0; b < lengths.batch(); ++b) {
    const auto s = static_cast<std::size_t>(b);
    for (std::int64_t row = 0; row < lengths.added[s] * kv_heads; ++row, list += size) {
      const std::int64_t position = lengths.cached[s] + row / kv_heads;
      const std::int64_t seen = std::max<std::int64_t>(0, std::min(position + 1, lengths.keys(b)));
      const std::int64_t blocks = (seen + spec.block_size - 1) / spec.block_size;
      const std::uint64_t row_seed =
          hash_of(stream, static_cast<std::uint64_t>(list - tensor.as<std::int32_t>()));
      std::fill_n(list, size, -1);
      if (spec.lists == "chosen") choose({list, size}, blocks, row_seed);
      if (spec.lists == "hostile") scatter({list, size}, blocks, row_seed);
    }
  }
  return tensor;
}

}  // namespace quire::tools
