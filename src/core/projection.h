// SPDX-License-Identifier: Apache-2.0
// Y = X · Wᵀ (+ bias) as backends see it, whichever op asks for it: fused_qkv_matmul, whose last columns go into a cache,
// or linear, which has none.
#pragma once

#include <cstdint>
#include <optional>

#include "quire/activations.h"
#include "quire/paged_kv_cache.h"
#include "quire/weight.h"

namespace quire {

// Arguments by reference: it lives inside one call, and costs nothing to make.
struct Projection {
  template <typename Args>
  explicit Projection(const Args& args)
      : x(args.x),
        weight(args.weight),
        bias(args.bias),
        input_scale(args.input_scale),
        out(args.out),
        activations(args.activations),
        allow_fast_accum(args.allow_fast_accum),
        allow_tf32(args.allow_tf32),
        batch_invariant(args.batch_invariant) {
    if constexpr (requires { args.cache; }) {
      cache = &args.cache;
      layer = args.layer;
      row_offsets = &args.row_offsets;
    }
  }

  const TensorView& x;                    // [tokens, hidden]
  const Weight& weight;                   // [columns of out, then those of K and V; hidden]
  const std::optional<TensorView>& bias;  // [rows of weight]
  const std::optional<TensorView>& input_scale;
  const TensorView& out;  // [tokens, q_dim]
  Activations activations;
  bool allow_fast_accum;
  bool allow_tf32;
  bool batch_invariant;
  const PagedKVCache* cache = nullptr;  // null: all columns are those of out
  std::int64_t layer = 0;
  const TensorView* row_offsets = nullptr;  // with a cache: u32 [batch + 1]
};

}  // namespace quire
