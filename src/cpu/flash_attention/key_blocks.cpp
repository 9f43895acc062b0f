// SPDX-License-Identifier: Apache-2.0
#include "cpu/flash_attention/key_blocks.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include "cpu/attention/batch.h"
#include "cpu/attention/mask_ranges.h"
#include "cpu/attention/work_list.h"
#include "cpu/runtime/scratch.h"
#include "quire/blocked_operand.h"

namespace quire::cpu {
namespace {

// Slots up to the last one in which a head of the token has a block that it sees something of.
std::int64_t count_blocks(const FlashAttentionArgs& args, std::int64_t token,
                          const KeyRange& seen) {
  const TensorView& blocks = *args.key_blocks;
  std::int64_t count = 0;
  for (std::int64_t head = 0; head < blocks.shape[1]; ++head) {
    const auto* ids = blocks.as<const std::int32_t>() + blocks.offset({token, head, 0});
    for (std::int64_t slot = blocks.shape[2]; slot > count; --slot) {
      const std::int64_t id = ids[(slot - 1) * blocks.strides[2]];
      const std::int64_t first = id * args.key_block_size;
      if (id < 0 || first >= seen.end || first + args.key_block_size <= seen.begin) continue;
      count = slot;
    }
  }
  return count;
}

struct Place {
  std::int64_t sequence;
  std::int64_t cached;  // keys before the sequence's first new token
  std::int64_t position;
  std::int64_t num_keys;
};

std::vector<Place> places_of(const FlashAttentionArgs& args, const KvOperandRef& keys) {
  std::vector<Place> places(static_cast<std::size_t>(args.q.shape[0]));
  const std::vector<SequenceSpan> sequences = sequence_spans(args.row_offsets, keys);
  for (std::int64_t s = 0; s < std::ssize(sequences); ++s) {
    const SequenceSpan& span = sequences[static_cast<std::size_t>(s)];
    for (std::int64_t local = 0; local < span.num_tokens; ++local) {
      places[static_cast<std::size_t>(span.first_token + local)] = {
          .sequence = s,
          .cached = span.cache_length,
          .position = span.cache_length + local,
          .num_keys = span.num_keys()};
    }
  }
  return places;
}

// Some neighbouring tokens of a call as sequences of their own, and what they see.
class TokenSequences {
 public:
  TokenSequences(const FlashAttentionArgs& args, std::span<const Place> places, std::int64_t first)
      : mask_(args.mask), places_(places), first_(first), offsets_(places.size() + 1) {
    std::iota(offsets_.begin(), offsets_.end(), static_cast<std::uint32_t>(first));
    for (std::int64_t i = 0; i < std::ssize(places); ++i) {
      const Place& place = places[static_cast<std::size_t>(i)];
      const KeyRange seen = mask_.range(first + i, place.position, place.num_keys);
      sources_.push_back({.sequence = place.sequence,
                          .begin = seen.begin,
                          .end = seen.end,
                          .num_blocks = count_blocks(args, first + i, seen)});
    }
  }
  TokenSequences(const TokenSequences&) = delete;  // filters point to it

  const BlockSource* sources() const { return sources_.data(); }
  TensorView row_offsets() {
    return TensorView::contiguous(offsets_.data(), DType::u32, {std::ssize(offsets_)});
  }
  // Of masks that are more than an interval of keys for each token.
  KeyFilter filter() const { return mask_.is_exact() ? KeyFilter{} : KeyFilter{this, shows}; }

 private:
  static bool shows(const void* state, std::int64_t sequence, std::int64_t key) {
    const auto& self = *static_cast<const TokenSequences*>(state);
    const Place& place = self.places_[static_cast<std::size_t>(sequence)];
    const MaskRanges::State mask{.ranges = &self.mask_, .cache_length = place.cached};
    QueryRow row{};
    row.token = self.first_ + sequence;
    row.position = place.position;
    std::uint8_t is_visible = 0;
    MaskRanges::fill_visible(&mask, row, key, 1, &is_visible);
    return is_visible != 0;
  }

  MaskRanges mask_;
  std::span<const Place> places_;
  std::int64_t first_;
  std::vector<BlockSource> sources_;
  std::vector<std::uint32_t> offsets_;
};

// Tokens whose states, were all of their keys split, stay within the scratch of a long prefill.
std::int64_t tokens_at_a_time(const FlashAttentionArgs& args) {
  constexpr std::int64_t kStateBytes = std::int64_t{64} << 20;
  const std::int64_t keys = args.key_blocks->shape[2] * args.key_block_size;
  const std::int64_t splits = keys / kShortestSplit + 1;
  const std::int64_t bytes = args.q.shape[1] * (args.out.shape[2] + 3) * 4;
  return std::max<std::int64_t>(1, kStateBytes / bytes / splits);
}

}  // namespace

void attend_key_blocks(const FlashAttentionArgs& args, const KvOperandRef& keys,
                       const std::optional<KvOperandRef>& values, const ScoreRule& score,
                       const Context& context, Target target) {
  // The operand gives no row of a key that its token does not see.
  const Mask everything = Mask::full();
  const std::vector<Place> places = places_of(args, keys);
  const std::int64_t step = tokens_at_a_time(args);
  for (std::int64_t first = 0; first < std::ssize(places); first += step) {
    const std::int64_t count = std::min(step, std::ssize(places) - first);
    TokenSequences tokens(
        args,
        std::span(places).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)),
        first);
    TensorView blocks = *args.key_blocks;
    blocks.data = blocks.as<std::int32_t>() + blocks.offset({first, 0, 0});
    const auto blocked = [&](const KvOperandRef& rows) {
      return BlockedOperand<KvOperandRef>(rows, blocks, args.key_block_size, tokens.sources(),
                                          tokens.filter());
    };
    const BlockedOperand<KvOperandRef> key_rows = blocked(keys);
    const BlockedOperand<KvOperandRef> value_rows = blocked(values.value_or(keys));
    const AttentionBatch batch{
        .q = args.q,
        .row_offsets = tokens.row_offsets(),
        .keys = key_rows,
        .values = values ? std::optional<KvOperandRef>(value_rows) : std::nullopt,
        .mask = everything,
        .heads_are_apart = true,
        .score = score,
        .sinks = args.sinks,
        .out = args.out,
        .lse = args.lse};
    BatchAttention attention(batch, context, target);
    attention.run(thread_scratch(attention.scratch_bytes()));
  }
}

}  // namespace quire::cpu
