// SPDX-License-Identifier: Apache-2.0
#include "quire/ops/compress_keys.h"

#include <algorithm>

#include "quire/element.h"
#include "reference/compress_keys.h"
#include "tools/case/case.h"
#include "tools/case/latent_spec.h"
#include "tools/case/op_parsers.h"
#include "tools/case/random_stream.h"

namespace quire::tools {
namespace {

// The cache's lengths are those of rows; the case's are tokens.
class CompressKeysCase final : public OpCase {
 public:
  explicit CompressKeysCase(const Fields& fields)
      : lengths_(read_lengths(fields)),
        ratio_(fields.integer("ratio", 1)),
        rows_(compressed(lengths_, ratio_)),
        cache_(read_cache(fields, rows_, /*is_mla=*/true)),
        series_(fields.flag("overlap", false) ? 2 : 1),
        rope_dim_(fields.integer("rope_dim", 2, 2)),
        kv_dtype_(fields.dtype("kv_dtype", {DType::f32, DType::f16, DType::bf16}, DType::bf16)),
        state_f32_(fields.flag("state_f32", true)),
        state_rows_(fields.integer("state_rows", series_ * ratio_, series_ * ratio_)),
        slots_(fields.flag("state_slots", false)),
        gates_(fields.number("gate_amplitude", 1.0)),
        epsilon_(fields.number("epsilon", 1e-6)) {}

  Built build(Layout layout, std::uint64_t seed, std::int64_t max_bytes) const override {
    Built built(layout, max_bytes);
    Memory& memory = built.memory;
    const CacheSpec cache = layout == Layout::contiguous ? cache_.contiguous_twin(rows_) : cache_;
    const std::int64_t tokens = lengths_.tokens();
    const std::int64_t columns = series_ * cache.width();
    CompressKeysArgs args;
    args.kv = build_tensor(memory, seed, "kv", kv_dtype_, {tokens, columns});
    args.gate = build_tensor(memory, seed, "gate", kv_dtype_, {tokens, columns}, gates_);
    args.bias = build_tensor(memory, seed, "bias", kv_dtype_, {ratio_, columns}, 0.5);
    args.row_offsets = build_row_offsets(memory, lengths_);
    args.cache = build_cache(memory, cache, rows_, Contents::cached, seed);
    count_tokens(args.cache, lengths_);
    args.layer = cache.layer;
    args.gamma = build_tensor(memory, seed, "gamma", kv_dtype_, {cache.width()}, 0.1, 1.0);
    args.freqs_cis =
        build_freqs(memory, DType::f32, std::max<std::int64_t>(1, lengths_.max_keys()), rope_dim_);
    args.epsilon = epsilon_;
    add_state(memory, seed, args);
    built.in_place("state", args.state);
    built.written_rows({.cache = args.cache, .layer = args.layer, .lengths = rows_});
    bind(
        built, args, [](const auto& a, const Context& c) { compress_keys(a, c); },
        [](const CompressKeysArgs& a, reference::Arithmetic m) { reference::compress_keys(a, m); });
    return built;
  }

  double flops() const override {
    return 8.0 * static_cast<double>(rows_.tokens() * series_ * ratio_ * cache_.width());
  }
  bool only_moves_data() const override { return true; }
  double bytes() const override {
    const double token = 2.0 * static_cast<double>(series_ * cache_.width());
    return static_cast<double>(lengths_.tokens()) * token * bits(kv_dtype_) / 8.0 +
           static_cast<double>(rows_.tokens() * cache_.token_bytes());
  }

 private:
  // What earlier calls kept: the last tokens of each sequence, the rest poison. Slots in the other order, one to spare.
  void add_state(Memory& memory, std::uint64_t seed, CompressKeysArgs& args) const {
    const std::int64_t columns = args.kv.shape[1];
    const std::int64_t batch = lengths_.batch();
    const DType dtype = state_f32_ ? DType::f32 : kv_dtype_;
    args.state = memory.allocate("state", dtype, {batch + 1, state_rows_, 2, columns});
    if (slots_) args.state_slots = memory.allocate("state_slots", DType::u32, {batch});
    for (std::int64_t b = 0; b < batch; ++b) {
      const std::int64_t slot = slots_ ? batch - b : b;
      if (slots_) args.state_slots->as<std::uint32_t>()[b] = static_cast<std::uint32_t>(slot);
      const std::int64_t cached = lengths_.cached[static_cast<std::size_t>(b)];
      for (std::int64_t token = std::max<std::int64_t>(cached - state_rows_, 0); token < cached;
           ++token) {
        const std::uint64_t row =
            hash_of(seed_of("state", seed), static_cast<std::uint64_t>(b * (1 << 20) + token));
        for (std::int64_t i = 0; i < 2 * columns; ++i) {
          const double value = normal_at(row, static_cast<std::uint64_t>(i));
          args.state.store({slot, token % state_rows_, i / columns, i % columns},
                           round_to(kv_dtype_, value));
        }
      }
    }
  }

  Lengths lengths_;
  std::int64_t ratio_;
  Lengths rows_;
  CacheSpec cache_;
  std::int64_t series_;
  std::int64_t rope_dim_;
  DType kv_dtype_;
  bool state_f32_;
  std::int64_t state_rows_;
  bool slots_;
  double gates_;
  double epsilon_;
};

}  // namespace

std::unique_ptr<OpCase> parse_compress_keys(const Fields& fields) {
  return std::make_unique<CompressKeysCase>(fields);
}

}  // namespace quire::tools
