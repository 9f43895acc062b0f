// SPDX-License-Identifier: Apache-2.0
// Attention of a whole batch over the rows of any operand: what flash_attention, mla_decode and
// mla_prefill share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "cpu/attention/kernels.h"
#include "cpu/attention/key_operands.h"
#include "cpu/attention/mask_ranges.h"
#include "cpu/attention/work_list.h"
#include "cpu/runtime/target.h"
#include "cpu/runtime/thread_pool.h"
#include "quire/kv_operand.h"
#include "quire/mask.h"
#include "quire/tensor_view.h"

namespace quire::cpu {

struct AttentionBatch {
  TensorView q;            // [tokens, heads, key_width] f32, f16, bf16
  TensorView row_offsets;  // u32 [batch + 1]
  KvOperandRef keys;
  std::optional<KvOperandRef> values{};  // absent: V is the first columns of the K row
  const Mask& mask;
  // Rows of a KV head are not at KvHeads::row_stride_bytes from those of the one before it, but looked up on their own.
  bool heads_are_apart = false;
  ScoreRule score{};
  std::optional<TensorView> slopes{};  // f32 [heads]
  std::optional<TensorView> sinks{};   // f32 [heads]
  TensorView out;                      // [tokens, heads, value_width]
  std::optional<TensorView> lse{};     // f32 [tokens, heads]
  // mla_prefill: K and V of every head are made from the keys, which are latents. Of UpProjection, `weight`
  // and `first_row` are those of head 0; heads follow each other at projection_rows.
  std::optional<UpProjection> up{};
  std::int64_t projection_rows = 0;
};

class BatchAttention {
 public:
  // The tensors' data may be set until run(); everything else counts now.
  BatchAttention(const AttentionBatch& batch, const Workers& workers, Target target);

  std::int64_t scratch_bytes() const;
  // scratch: on a cache line.
  void run(std::byte* scratch);

 private:
  void measure_workers();
  void fill_rows(const WorkPiece& piece, QueryRow* rows) const;
  // Token `local` of the sequence, without ALiBi and sink.
  QueryRow query_row(const SequenceSpan& sequence, std::int64_t local, std::int64_t head) const;
  RowStates states_from(std::int64_t row) const;
  UpProjection up_projection(std::int64_t head) const;
  void attend(const WorkPiece& piece, std::byte* scratch) const;
  void join_all(std::byte* scratch) const;
  void join(const WorkMerge& merge, std::int64_t head, std::int64_t first_row,
            std::byte* scratch) const;

  const AttentionBatch& batch_;
  const AttentionEngine& engine_;
  KeyOperands operands_;
  MaskRanges mask_;
  std::vector<SequenceSpan> sequences_;
  WorkShape shape_;
  WorkList list_;
  Workers workers_;
  std::int64_t row_bytes_ = 0;     // of a worker's QueryRows
  std::int64_t worker_bytes_ = 0;  // and its kernel scratch
  RowStates states_{};
};

}  // namespace quire::cpu
