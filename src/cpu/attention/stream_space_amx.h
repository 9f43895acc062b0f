// SPDX-License-Identifier: Apache-2.0
// The scratch of cpu/attention/streamed_strips_amx.h.
#pragma once

#include "cpu/attention/stream_layout_amx.h"
#include "cpu/attention/workspace.h"
#include "cpu/simd/tile_bf16_amx.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

struct StreamSpace {
  static constexpr int kRows = AmxBf16::kRows;
  static constexpr int kFewRows = 4;

  StreamSpace(const AttentionShape& shape, Carver& carver)
      : columns(shape.rows_per_head <= kFewRows ? kFewRows : kRows),
        rows(without_panels(shape), carver),
        streams(shape, carver) {
    scores = carver.take<float>(shape.num_heads * kStreamChunk * columns);
    weights =
        carver.take<std::uint16_t>(shape.num_heads * kStreamSteps * shape.rows_per_head * kStreams);
    for (auto& panel : panels) panel = carver.take<std::uint16_t>(kStreams * kStreamBlock);
    rows.present = streams.present();
    // Columns are out of order within 32; the padding of a row has room for them.
    rows.value_columns = round_up_to(shape.value_width, AmxBf16::kDepth);
  }

  int columns;  // of a tile of transposed scores: query rows, padded
  Workspace<AmxBf16> rows;
  KeyStreams<std::uint16_t> streams;
  float* scores;           // [heads][kStreamChunk][columns]
  std::uint16_t* weights;  // A tiles [heads][kStreamSteps][rows_per_head][kStreams]
  std::uint16_t*
      panels[2];  // [kStreams, kStreamBlock] of K, or B tiles of V: one is filled while the
                  // other one is multiplied

 private:
  static AttentionShape without_panels(AttentionShape shape) {
    shape.chunk = kStreamChunk;
    shape.packed = 0;
    return shape;
  }
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
