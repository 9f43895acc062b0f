// SPDX-License-Identifier: Apache-2.0
#include "reference/select_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "quire/paged_kv_operand.h"
#include "reference/key_rows.h"
#include "reference/ragged.h"
#include "reference/row_codec.h"
#include "reference/tensor_row.h"

namespace quire::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Between which numbers an fp32 evaluation of a score may lie.
struct Score {
  double value = -kInfinity;
  double low = -kInfinity;
  double high = -kInfinity;
};

struct Block {
  std::int64_t id;
  bool is_forced;
  Score score{};
};

Score score_key(std::span<const double> q, std::span<const double> key) {
  double sum = 0.0;
  double magnitude = 0.0;
  for (std::size_t i = 0; i < q.size(); ++i) {
    sum += q[i] * key[i];
    magnitude += std::abs(q[i] * key[i]);
  }
  if (std::isnan(sum)) return {};
  // A rounding for each product and each addition, and one for a scale; subnormal results lose a last bit each.
  const double roundings = static_cast<double>(q.size() + 3) * 0x1p-24;
  const double error =
      roundings / (1.0 - roundings) * magnitude +
      static_cast<double>(q.size() + 1) * double{std::numeric_limits<float>::denorm_min()};
  // Sums may overflow on the way, and be infinite of either sign or NaN then.
  if (magnitude >= double{std::numeric_limits<float>::max()}) return {sum, -kInfinity, kInfinity};
  return {sum, sum - error, sum + error};
}

void raise(Score& best, const Score& score) {
  best = {std::max(best.value, score.value), std::max(best.low, score.low),
          std::max(best.high, score.high)};
}

Token find_token(const SelectBlocksArgs& args, std::int64_t index) {
  const std::vector<Token> tokens = tokens_of(args.row_offsets, args.cache);
  return *std::find_if(tokens.begin(), tokens.end(),
                       [index](const Token& token) { return token.index == index; });
}

// Those that the token sees keys of, ascending.
std::vector<Block> blocks_of(const SelectBlocksArgs& args, const Token& token, std::int64_t head) {
  const PagedKvOperand keys(args.cache.key(args.layer));
  const std::int64_t kv_head = head / (args.q.shape[1] / keys.heads().count);
  const std::vector<double> q = load_row(args.q, token.index, head);
  const std::int64_t own = token.position / args.block_size;
  const std::int64_t last = num_keys(args.row_offsets, args.cache, token.sequence);
  std::vector<Block> blocks;
  for (const std::int64_t key : visible_keys(keys, args.mask, token, {.first = 0, .last = last})) {
    const std::int64_t id = key / args.block_size;
    if (blocks.empty() || blocks.back().id != id) {
      const bool is_local = id <= own && own - id < args.local_blocks;
      blocks.push_back({.id = id, .is_forced = is_local || id < args.first_blocks});
    }
    raise(blocks.back().score, score_key(q, decode_row(keys, token.sequence, kv_head, key)));
  }
  return blocks;
}

std::string order_fault(std::span<const std::int32_t> selected, std::size_t count,
                        std::span<const Block> blocks) {
  for (std::size_t i = 0; i < count; ++i) {
    const bool is_seen =
        std::ranges::any_of(blocks, [&](const Block& block) { return block.id == selected[i]; });
    if (!is_seen) {
      return fmt::format("slot {} holds {}, of which the token sees no key", i, selected[i]);
    }
    if (i > 0 && selected[i] <= selected[i - 1]) {
      return fmt::format("slot {} holds {}, not more than slot {}", i, selected[i], i - 1);
    }
  }
  for (std::size_t i = count; i < selected.size(); ++i) {
    if (selected[i] != -1) return fmt::format("slot {} holds {}, not -1", i, selected[i]);
  }
  return {};
}

// The least of the best that chosen blocks may score against the most that left-out ones must score.
std::string score_fault(std::span<const std::int32_t> chosen, std::span<const Block> blocks) {
  double highest_possible = kInfinity;
  double lowest_possible = -kInfinity;
  for (const Block& block : blocks) {
    const bool is_chosen = std::ranges::binary_search(chosen, block.id);
    if (block.is_forced) {
      if (!is_chosen) return fmt::format("block {} is left out, first or local", block.id);
    } else if (is_chosen) {
      highest_possible = std::min(highest_possible, block.score.high);
    } else {
      lowest_possible = std::max(lowest_possible, block.score.low);
    }
  }
  if (highest_possible >= lowest_possible) return {};
  return fmt::format("a chosen block scores at most {}, a left-out one at least {}",
                     highest_possible, lowest_possible);
}

}  // namespace

void select_blocks(const SelectBlocksArgs& args) {
  const auto max_blocks = static_cast<std::size_t>(args.out.shape[2]);
  for (const Token& token : tokens_of(args.row_offsets, args.cache)) {
    for (std::int64_t head = 0; head < args.q.shape[1]; ++head) {
      std::vector<Block> blocks = blocks_of(args, token, head);
      std::ranges::stable_sort(blocks, [](const Block& a, const Block& b) {
        if (a.is_forced != b.is_forced) return a.is_forced;
        if (a.is_forced) return false;
        return static_cast<float>(a.score.value) > static_cast<float>(b.score.value);
      });
      if (blocks.size() > max_blocks) blocks.resize(max_blocks, Block{});
      std::ranges::sort(blocks, {}, &Block::id);
      for (std::size_t slot = 0; slot < max_blocks; ++slot) {
        args.out.store({token.index, head, static_cast<std::int64_t>(slot)},
                       slot < blocks.size() ? static_cast<double>(blocks[slot].id) : -1.0);
      }
    }
  }
}

std::string block_selection_fault(const SelectBlocksArgs& args, std::int64_t token,
                                  std::int64_t head, std::span<const std::int32_t> selected) {
  const std::vector<Block> blocks = blocks_of(args, find_token(args, token), head);
  const std::size_t count = std::min(blocks.size(), selected.size());
  const std::string fault = order_fault(selected, count, blocks);
  if (!fault.empty() || count == blocks.size()) return fault;
  return score_fault(selected.first(count), blocks);
}

}  // namespace quire::reference
