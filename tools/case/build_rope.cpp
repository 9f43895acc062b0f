// SPDX-License-Identifier: Apache-2.0
#include "quire/ops/rope.h"

#include <algorithm>

#include "reference/rope.h"
#include "tools/case/case.h"
#include "tools/case/latent_spec.h"
#include "tools/case/limits.h"
#include "tools/case/op_parsers.h"
#include "tools/case/random_stream.h"

namespace quire::tools {
namespace {

class RopeCase final : public OpCase {
 public:
  explicit RopeCase(const Fields& fields)
      : lengths_(read_lengths(fields)),
        cache_(read_cache(fields, lengths_, /*is_mla=*/false)),
        heads_(fields.integer("heads", 1)),
        rope_dim_(fields.integer("rope_dim", 2, cache_.width())),
        q_dtype_(fields.dtype("q_dtype", {DType::f32, DType::f16, DType::bf16}, DType::bf16)),
        freqs_dtype_(
            fields.dtype("freqs_dtype", {DType::f32, DType::f16, DType::bf16}, DType::f32)),
        interleaved_(fields.flag("interleaved", false)),
        inverse_(fields.flag("inverse", false)),
        sections_(fields.integers("mrope_sections", 0, kMaxSize)),
        position_ids_(fields.flag("position_ids", !sections_.empty())),
        position_stride_(fields.integer("position_stride", 1, 1)),
        rotate_key_(fields.flag("rotate_key", true)),
        q_gamma_(fields.integer("q_gamma", 0, 0)),
        key_gamma_(fields.integer("key_gamma", 0, 0)),
        gamma_dtype_(
            fields.dtype("gamma_dtype", {DType::f32, DType::f16, DType::bf16}, DType::bf16)),
        epsilon_(fields.number("epsilon", 1e-6)),
        weight_offset_(fields.number("weight_offset", 0.0)),
        in_place_(fields.flag("in_place", false)) {}

  Built build(Layout layout, std::uint64_t seed, std::int64_t max_bytes) const override {
    Built built(layout, max_bytes);
    Memory& memory = built.memory;
    const CacheSpec cache =
        layout == Layout::contiguous ? cache_.contiguous_twin(lengths_) : cache_;
    const std::int64_t tokens = lengths_.tokens();
    const std::int64_t positions = std::max<std::int64_t>(1, lengths_.max_keys());
    RopeArgs args;
    args.q = build_tensor(memory, seed, "q", q_dtype_, {tokens, heads_, cache_.width()});
    args.row_offsets = build_row_offsets(memory, lengths_);
    args.cache = build_cache(memory, cache, lengths_, Contents::cached_and_new, seed);
    args.layer = cache.layer;
    args.freqs_cis = build_freqs(memory, freqs_dtype_, positions, rope_dim_);
    args.interleaved = interleaved_;
    args.inverse = inverse_;
    if (position_ids_) args.position_ids = build_position_ids(memory, positions, seed);
    args.mrope_sections = sections_;
    args.rotate_key = rotate_key_;
    add_norms(memory, seed, args);
    args.out = args.q;
    if (in_place_) built.in_place("out", args.q);
    if (!in_place_) args.out = built.output("out", q_dtype_, {tokens, heads_, cache_.width()});
    if (rotate_key_) {
      built.written_rows({.cache = args.cache, .layer = args.layer, .lengths = lengths_});
    }
    bind(
        built, args, [](const auto& a, const Context& c) { rope(a, c); },
        [](const RopeArgs& a, reference::Arithmetic m) { reference::rope(a, m); });
    return built;
  }

  double flops() const override {
    const std::int64_t rows = heads_ + (rotate_key_ ? cache_.kv_heads : 0);
    const std::int64_t norms = heads_ * q_gamma_ + cache_.kv_heads * key_gamma_;
    return static_cast<double>(lengths_.tokens()) *
           static_cast<double>(3 * rows * rope_dim_ + 4 * norms);
  }
  bool only_moves_data() const override { return true; }
  double bytes() const override {
    const auto tokens = static_cast<double>(lengths_.tokens());
    const double q =
        2.0 * tokens * static_cast<double>(heads_ * cache_.width()) * bits(q_dtype_) / 8.0;
    const double key = 2.0 * tokens * static_cast<double>(cache_.kv_heads * cache_.row_bytes());
    return q + (rotate_key_ ? key : 0.0);
  }

 private:
  void add_norms(Memory& memory, std::uint64_t seed, RopeArgs& args) const {
    const auto build_gamma = [&](const char* name, std::int64_t columns) {
      return build_tensor(memory, seed, name, gamma_dtype_, {columns}, 0.1, 1.0 - weight_offset_);
    };
    if (q_gamma_ > 0) args.q_gamma = build_gamma("q_gamma", q_gamma_);
    if (key_gamma_ > 0) args.key_gamma = build_gamma("key_gamma", key_gamma_);
    args.epsilon = epsilon_;
    args.weight_offset = weight_offset_;
  }

  TensorView build_position_ids(Memory& memory, std::int64_t positions, std::uint64_t seed) const {
    const auto sections = std::max<std::int64_t>(1, static_cast<std::int64_t>(sections_.size()));
    // What lies between is 0xffffffff: past every row of freqs_cis.
    TensorView ids = memory.allocate("position_ids", DType::u32,
                                     {sections, lengths_.tokens(), position_stride_});
    const std::uint64_t stream = seed_of("position_ids", seed);
    for (std::int64_t i = 0; i < sections * lengths_.tokens(); ++i) {
      ids.as<std::uint32_t>()[i * position_stride_] =
          static_cast<std::uint32_t>(integer_at(stream, static_cast<std::uint64_t>(i), positions));
    }
    ids.rank = 2;
    return ids;
  }

  Lengths lengths_;
  CacheSpec cache_;
  std::int64_t heads_;
  std::int64_t rope_dim_;
  DType q_dtype_;
  DType freqs_dtype_;
  bool interleaved_;
  bool inverse_;
  std::vector<std::int64_t> sections_;
  bool position_ids_;
  std::int64_t position_stride_;  // elements from a token's to the next one's
  bool rotate_key_;
  std::int64_t q_gamma_;  // columns that are normalised; 0: no norm
  std::int64_t key_gamma_;
  DType gamma_dtype_;
  double epsilon_;
  double weight_offset_;
  bool in_place_;
};

}  // namespace

std::unique_ptr<OpCase> parse_rope(const Fields& fields) {
  return std::make_unique<RopeCase>(fields);
}

}  // namespace quire::tools
