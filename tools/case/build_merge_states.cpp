// SPDX-License-Identifier: Apache-2.0
#include "quire/ops/merge_states.h"

#include <algorithm>
#include <limits>

#include "reference/merge_states.h"
#include "tools/case/case.h"
#include "tools/case/op_parsers.h"

namespace quire::tools {
namespace {

class MergeStatesCase final : public OpCase {
 public:
  explicit MergeStatesCase(const Fields& fields)
      : states_(fields.integer("states", 1)),
        tokens_(fields.integer("tokens", 0)),
        heads_(fields.integer("heads", 1)),
        value_dim_(fields.integer("value_dim", 1)),
        dtype_(fields.dtype("dtype", {DType::f32, DType::f16, DType::bf16}, DType::bf16)),
        lse_(fields.flag("lse", true)),
        lse_mean_(fields.number("lse_mean", 0.0)),
        empty_states_(fields.integers("empty_states", 0, states_ - 1)),
        blind_tokens_(fields.integers("blind_tokens", 0, tokens_ - 1)) {
    std::sort(empty_states_.begin(), empty_states_.end());
    std::sort(blind_tokens_.begin(), blind_tokens_.end());
  }

  Built build(Layout layout, std::uint64_t seed, std::int64_t max_bytes) const override {
    Built built(layout, max_bytes);
    Memory& memory = built.memory;
    MergeStatesArgs args;
    args.states =
        build_tensor(memory, seed, "states", dtype_, {states_, tokens_, heads_, value_dim_});
    args.lses =
        build_tensor(memory, seed, "lses", DType::f32, {states_, tokens_, heads_}, 3.0, lse_mean_);
    // Where a device fills them itself, no state is empty: none will be compared.
    if (!memory.is_deferred(args.states.data)) empty_states_out(args);
    args.out = built.output("out", dtype_, {tokens_, heads_, value_dim_});
    if (lse_) args.lse = built.output("lse", DType::f32, {tokens_, heads_});
    built.empty_tokens = blind_tokens_;
    bind(
        built, args, [](const auto& a, const Context& c) { merge_states(a, c); },
        [](const MergeStatesArgs& a, reference::Arithmetic m) { reference::merge_states(a, m); });
    return built;
  }

  double flops() const override { return 2.0 * static_cast<double>(states_) * outputs(); }
  bool only_moves_data() const override { return true; }
  double bytes() const override {
    return outputs() * static_cast<double>(states_ + 1) * bits(dtype_) / 8.0;
  }

 private:
  double outputs() const { return static_cast<double>(tokens_ * heads_ * value_dim_); }

  static bool contains(const std::vector<std::int64_t>& list, std::int64_t value) {
    return std::binary_search(list.begin(), list.end(), value);
  }

  void empty_states_out(const MergeStatesArgs& args) const {
    for (std::int64_t s = 0; s < states_; ++s) {
      for (std::int64_t t = 0; t < tokens_; ++t) {
        if (contains(empty_states_, s) || contains(blind_tokens_, t)) empty_out(args, s, t);
      }
    }
  }

  // LSE -inf, and NaN where the state would be: it contributes nothing, whatever it holds.
  void empty_out(const MergeStatesArgs& args, std::int64_t state, std::int64_t token) const {
    for (std::int64_t h = 0; h < heads_; ++h) {
      args.lses.store({state, token, h}, -std::numeric_limits<double>::infinity());
      for (std::int64_t d = 0; d < value_dim_; ++d) {
        args.states.store({state, token, h, d}, std::numeric_limits<double>::quiet_NaN());
      }
    }
  }

  std::int64_t states_;
  std::int64_t tokens_;
  std::int64_t heads_;
  std::int64_t value_dim_;
  DType dtype_;
  bool lse_;
  double lse_mean_;
  std::vector<std::int64_t> empty_states_;  // sorted
  std::vector<std::int64_t> blind_tokens_;  // sorted
};

}  // namespace

std::unique_ptr<OpCase> parse_merge_states(const Fields& fields) {
  return std::make_unique<MergeStatesCase>(fields);
}

}  // namespace quire::tools
