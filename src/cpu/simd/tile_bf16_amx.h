// SPDX-License-Identifier: Apache-2.0
// bf16 on AMX: TDPBF16PS adds A [16 rows, 32 k] · B [32 k, 16 columns] to a tile of 16 × 16 f32.
//
// A panel: [depth/32][16 rows][32 k]. B panel: [depth/32][16 pairs][16 columns][2].
// Both are whole tiles of 1 KiB, read with a stride of 64 bytes.
#pragma once

#include "cpu/simd/pack_bf16_avx512.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// The intrinsics paste their tile number into the instruction, so they cannot take a template
// argument; these can.
template <int kTile> inline void tile_load(const void* base, std::int64_t stride_bytes) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2"
                   :
                   : "r"(base), "r"(stride_bytes), "i"(kTile)
                   : "memory");
}
// For the operand that streams past: it leaves the other one in the L1 cache.
template <int kTile> inline void tile_load_streamed(const void* base, std::int64_t stride_bytes) {
  __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm%c2"
                   :
                   : "r"(base), "r"(stride_bytes), "i"(kTile)
                   : "memory");
}
template <int kTile> inline void tile_store(void* base, std::int64_t stride_bytes) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)"
                   :
                   : "r"(base), "r"(stride_bytes), "i"(kTile)
                   : "memory");
}
template <int kTile> inline void tile_zero() {
  __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
template <int kC, int kA, int kB> inline void tile_multiply_bf16() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
}

struct TileShape {
  int rows;
  int bytes;  // of a row
};

// The tiles for as long as the object lives. One per thread and call: other code of the thread must
// not hold a configuration of its own meanwhile.
class AmxSession {
 public:
  static constexpr int kTiles = 8;

  explicit AmxSession(const TileShape (&shapes)[kTiles]) {
    alignas(64) std::uint8_t config[64] = {};
    config[0] = 1;  // palette
    for (int tile = 0; tile < kTiles; ++tile) {
      config[16 + 2 * tile] = static_cast<std::uint8_t>(shapes[tile].bytes);  // 16-bit field
      config[48 + tile] = static_cast<std::uint8_t>(shapes[tile].rows);
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
  }
  // Rows of 64 bytes, `width` of them in tiles 0-4 (C and A of the narrow product) and 16 in the
  // others.
  explicit AmxSession(int width = 16)
      : AmxSession({{width, 64},
                    {width, 64},
                    {width, 64},
                    {width, 64},
                    {width, 64},
                    {16, 64},
                    {16, 64},
                    {16, 64}}) {}
  ~AmxSession() { __asm__ volatile("tilerelease"); }
  AmxSession(const AmxSession&) = delete;
  AmxSession& operator=(const AmxSession&) = delete;
};

struct AmxBf16 {
  using Element = std::uint16_t;
  using Session = AmxSession;
  static constexpr int kRows = 16;
  static constexpr int kCols = 16;
  static constexpr int kDepth = 32;
  static constexpr bool kHasRoundedSums =
      true;  // of attention's weights (cpu/attention/workspace.h)

  static void pack_a(const Element* const* rows, int num_rows, std::int64_t depth, Element* panel) {
    pack_a_narrow(rows, num_rows, kRows, depth, panel);
  }

  static constexpr int narrow_rows(int rows) { return rows < kRows ? rows : kRows; }

  static void pack_a_narrow(const Element* const* rows, int num_rows, int width, std::int64_t depth,
                            Element* panel) {
    for (std::int64_t k = 0; k < depth; k += kDepth) {
      for (int i = 0; i < width; ++i, panel += kDepth) {
        _mm512_storeu_si512(panel, load_block(i < num_rows ? rows[i] : nullptr, k, depth));
      }
    }
  }

  static void pack_a_f32(const float* rows, std::int64_t stride, int num_rows, std::int64_t depth,
                         Element* panel) {
    for (std::int64_t k = 0; k < depth; k += kDepth) {
      for (int i = 0; i < kRows; ++i, panel += kDepth) {
        const __m512i block =
            i < num_rows ? load_block_f32(rows + i * stride, k, depth) : _mm512_setzero_si512();
        _mm512_storeu_si512(panel, block);
      }
    }
  }

  static void pack_b_columns(const Element* const* columns, int num_columns, std::int64_t depth,
                             Element* panel) {
    for (std::int64_t k = 0; k < depth; k += kDepth) {
      __m512i block[16];
      load_transposed(columns, 0, num_columns, k, depth, block);
      for (int i = 0; i < 16; ++i, panel += 2 * kCols) _mm512_storeu_si512(panel, block[i]);
    }
  }

  static void pack_b_rows(const Element* const* rows, std::int64_t depth, int num_columns,
                          Element* panel) {
    const std::int64_t padded = round_up_to(depth, kDepth);
    for (std::int64_t k = 0; k < padded; k += 2, panel += 2 * kCols) {
      const Element* even = k < depth ? rows[k] : nullptr;
      const Element* odd = k + 1 < depth ? rows[k + 1] : nullptr;
      _mm512_storeu_si512(panel, interleave_rows(even, odd, 0, num_columns));
    }
  }

  // 2 × 2 tiles of C: four chains hide the latency of a tile product, and every tile that is loaded
  // is used twice. A single row panel takes 1 × 4 instead.
  static void multiply(const Element* a, int row_panels, const Element* b, int col_panels,
                       std::int64_t depth, float* c, std::int64_t c_stride, Accumulate accumulate,
                       PanelStrides strides = {}) {
    const std::int64_t panel = kRows * round_up_to(depth, kDepth);
    const Block block{.a_panel = strides.a == 0 ? panel : strides.a,
                      .b_panel = strides.b == 0 ? panel : strides.b,
                      .a_step = kTileElements,
                      .steps = round_up_to(depth, kDepth) / kDepth,
                      .c_stride = c_stride,
                      .accumulate = accumulate};
    const int wide = row_panels == 1 ? 4 : 2;
    for (int n = 0; n < col_panels; n += wide) {
      const int cols = col_panels - n < wide ? col_panels - n : wide;
      for (int m = 0; m < row_panels; m += 2) {
        const int rows = row_panels - m < 2 ? 1 : 2;
        block.run(rows, cols, a + m * block.a_panel, b + n * block.b_panel,
                  c + m * kRows * c_stride + n * kCols);
      }
    }
  }

  // Needs a Session of that width.
  static void multiply_narrow(const Element* a, int width, const Element* b, int col_panels,
                              std::int64_t depth, float* c, std::int64_t c_stride,
                              Accumulate accumulate, std::int64_t b_stride) {
    const Block block{.a_panel = 0,
                      .b_panel = b_stride,
                      .a_step = width * kDepth,
                      .steps = round_up_to(depth, kDepth) / kDepth,
                      .c_stride = c_stride,
                      .accumulate = accumulate};
    for (int n = 0; n < col_panels; n += 4) {
      const int cols = col_panels - n < 4 ? col_panels - n : 4;
      block.run(1, cols, a, b + n * b_stride, c + n * kCols);
    }
  }

  static double spin(std::int64_t rounds) {
    const Session session;
    // Ones: products of zeros would run at a higher clock than any real ones.
    alignas(64) Element ones[kTileElements];
    for (Element& one : ones) one = 0x3f80;
    tile_load<4>(ones, kTileStride);
    tile_load<5>(ones, kTileStride);
    tile_load<6>(ones, kTileStride);
    tile_load<7>(ones, kTileStride);
    for (std::int64_t i = 0; i < rounds; ++i) {
      tile_multiply_bf16<0, 4, 6>();
      tile_multiply_bf16<1, 4, 7>();
      tile_multiply_bf16<2, 5, 6>();
      tile_multiply_bf16<3, 5, 7>();
    }
    return 4.0 * 2.0 * kRows * kCols * kDepth * static_cast<double>(rounds);
  }

 private:
  static constexpr std::int64_t kTileElements = 512;
  static constexpr std::int64_t kTileStride = 64;

  // Tiles 0-3: C; 4 and 5: A; 6 and 7: B (1 × 4: A in 4, B in 5-7 in turn).
  struct Block {
    std::int64_t a_panel;  // elements between panels
    std::int64_t b_panel;
    std::int64_t a_step;  // elements between the steps of an A panel
    std::int64_t steps;   // of 32 k
    std::int64_t c_stride;
    Accumulate accumulate;

    void run(int rows, int cols, const Element* a, const Element* b, float* c) const {
      if (rows == 2) {
        cols == 2 ? two_by_two(a, b, c) : two_by_one(a, b, c);
      } else if (cols == 4) {
        one_by_four(a, b, c);
      } else {
        for (int n = 0; n < cols; ++n) one_by_one(a, b + n * b_panel, c + n * kCols);
      }
    }

    template <int kTile> void begin(const float* c) const {
      if (accumulate == Accumulate::add) {
        tile_load<kTile>(c, c_stride * 4);
      } else {
        tile_zero<kTile>();
      }
    }
    template <int kTile> void end(float* c) const { tile_store<kTile>(c, c_stride * 4); }

    void two_by_two(const Element* a, const Element* b, float* c) const {
      float* below = c + kRows * c_stride;
      begin<0>(c);
      begin<1>(c + kCols);
      begin<2>(below);
      begin<3>(below + kCols);
      for (std::int64_t step = 0; step < steps; ++step) {
        const std::int64_t offset = step * kTileElements;
        tile_load<6>(b + offset, kTileStride);
        tile_load_streamed<4>(a + offset, kTileStride);
        tile_multiply_bf16<0, 4, 6>();
        tile_load<7>(b + b_panel + offset, kTileStride);
        tile_multiply_bf16<1, 4, 7>();
        tile_load_streamed<5>(a + a_panel + offset, kTileStride);
        tile_multiply_bf16<2, 5, 6>();
        tile_multiply_bf16<3, 5, 7>();
      }
      end<0>(c);
      end<1>(c + kCols);
      end<2>(below);
      end<3>(below + kCols);
    }

    void two_by_one(const Element* a, const Element* b, float* c) const {
      float* below = c + kRows * c_stride;
      begin<0>(c);
      begin<2>(below);
      for (std::int64_t step = 0; step < steps; ++step) {
        const std::int64_t offset = step * kTileElements;
        tile_load<6>(b + offset, kTileStride);
        tile_load<4>(a + offset, kTileStride);
        tile_multiply_bf16<0, 4, 6>();
        tile_load<5>(a + a_panel + offset, kTileStride);
        tile_multiply_bf16<2, 5, 6>();
      }
      end<0>(c);
      end<2>(below);
    }

    void one_by_four(const Element* a, const Element* b, float* c) const {
      begin<0>(c);
      begin<1>(c + kCols);
      begin<2>(c + 2 * kCols);
      begin<3>(c + 3 * kCols);
      for (std::int64_t step = 0; step < steps; ++step) {
        const std::int64_t offset = step * kTileElements;
        tile_load<4>(a + step * a_step, kTileStride);
        tile_load<5>(b + offset, kTileStride);
        tile_multiply_bf16<0, 4, 5>();
        tile_load<6>(b + b_panel + offset, kTileStride);
        tile_multiply_bf16<1, 4, 6>();
        tile_load<7>(b + 2 * b_panel + offset, kTileStride);
        tile_multiply_bf16<2, 4, 7>();
        tile_load<5>(b + 3 * b_panel + offset, kTileStride);
        tile_multiply_bf16<3, 4, 5>();
      }
      end<0>(c);
      end<1>(c + kCols);
      end<2>(c + 2 * kCols);
      end<3>(c + 3 * kCols);
    }

    void one_by_one(const Element* a, const Element* b, float* c) const {
      begin<0>(c);
      for (std::int64_t step = 0; step < steps; ++step) {
        tile_load<4>(a + step * a_step, kTileStride);
        tile_load<6>(b + step * kTileElements, kTileStride);
        tile_multiply_bf16<0, 4, 6>();
      }
      end<0>(c);
    }
  };
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
