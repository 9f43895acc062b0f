// SPDX-License-Identifier: Apache-2.0
// Which keys a query sees. A value: combine with & (both allow) and | (either allows).
// q and k are absolute positions: a new token i of a sequence stands at cache_length + i.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quire/export.h"
#include "quire/tensor_view.h"

namespace quire {

enum class MaskKind : std::uint8_t {
  full,            // every key
  causal,          // k <= q
  sliding_window,  // |q - k| < size; `causal() & sliding_window(n)` is the usual causal window
  chunked,         // q / size == k / size
  tree,            // cached keys, and of the new ones those whose bit is set in the query's row
  key_intervals,   // begin[query] <= k < end[query]: bounds that every query brings itself
  all_of,          // left and right
  any_of,          // left or right
};

// What planners know of a mask: a plain value without addresses.
struct MaskSummary {
  static constexpr std::int64_t kUnbounded = std::int64_t{1} << 62;

  // Every query sees one interval of keys, and of those what `trees` trees show: causal, windows, chunks of one size and
  // key intervals, joined by &. The three bounds are of that interval, and mean nothing where there is none; of key
  // intervals, whose bounds are device data, they say nothing.
  bool is_interval = true;
  std::int64_t ahead = kUnbounded;   // keys behind the query's own position; 0: causal
  std::int64_t window = kUnbounded;  // |q - k| < window
  std::int64_t chunk = kUnbounded;   // q / chunk == k / chunk
  std::int32_t trees = 0;
  std::int32_t key_intervals = 0;
  std::int32_t masks = 1;  // that are joined

  // Without windows, chunks, trees and key intervals.
  bool is_causal_or_full() const {
    return is_interval && window == kUnbounded && chunk == kUnbounded && trees == 0 &&
           key_intervals == 0;
  }
  bool operator==(const MaskSummary&) const = default;
};

class QUIRE_API Mask {
 public:
  // Of 64 masks joined. Kernels walk a mask as the tree it is, per key and on the stack.
  static constexpr std::int32_t kMaxNodes = 127;

  struct Node {
    MaskKind kind = MaskKind::full;
    std::int64_t size = 0;   // sliding_window, chunked
    TensorView bits{};       // tree: u8 [tokens, max_new_tokens], nonzero = visible
    TensorView begin{};      // key_intervals: i32 [tokens], any stride
    TensorView end{};        // the same
    std::int32_t left = -1;  // all_of, any_of: indices of earlier nodes
    std::int32_t right = -1;
  };

  Mask();  // causal
  static Mask full();
  static Mask causal();
  static Mask sliding_window(std::int64_t size);
  static Mask chunked(std::int64_t size);
  static Mask tree(TensorView bits);
  // Token t of the batch sees the keys [begin[t], end[t]) of its sequence: i32 [tokens] each, such as the columns of one
  // i32 [tokens, 2]. Bounds outside of the sequence's keys are cut to them; begin >= end shows none.
  static Mask key_intervals(TensorView begin, TensorView end);
  // "causal", "null" (= "full"), "full", "chunked_causal:N", "sliding_window_causal:N", … as the
  // CLI and cases spell it.
  static Mask parse(const std::string& text);

  // Error beyond kMaxNodes.
  friend Mask operator&(const Mask& left, const Mask& right) {
    return join(MaskKind::all_of, left, right);
  }
  friend Mask operator|(const Mask& left, const Mask& right) {
    return join(MaskKind::any_of, left, right);
  }

  // Children stand before their parents; the last node is the root.
  const std::vector<Node>& nodes() const { return nodes_; }
  const Node& root() const { return nodes_.back(); }
  std::string describe() const;  // "causal & sliding_window(1024)"
  MaskSummary summary() const;

 private:
  static Mask leaf(Node node);
  static Mask join(MaskKind kind, const Mask& left, const Mask& right);

  std::vector<Node> nodes_;
};

}  // namespace quire
