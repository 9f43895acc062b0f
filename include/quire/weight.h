// SPDX-License-Identifier: Apache-2.0
// A projection weight W [N, K] (rows of Wq, then Wk, then Wv), plain or quantized. w(n, k) below is
// the value used.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "quire/export.h"
#include "quire/tensor_view.h"

namespace quire {

enum class WeightFormat : std::uint8_t {
  // data f32, f16 or bf16 [N, K]
  dense,
  // data fp8 [N, K]; scale f32 [1, 1] (tensor), [N, 1] (channel) or [⌈N/128⌉, ⌈K/128⌉] (block)
  fp8,
  // (code - zero) · scale: data u4 [N, K] packed along K, scale [N, K/g], zeros u8 [N, K/g] or none (= 8)
  int4,
  // data i32 [K/8, N], nibble j of word r is column 8r + j of W; scale [K/g, N];
  // zeros i32 [K/g, N/8] stored minus one, or none (= 8)
  gptq,
  // the same with zeros stored as they are
  gptq_v2,
  // data i32 [K, N/8], nibbles in the order 0 2 4 6 1 3 5 7; scale [K/g, N]; zeros i32 [K/g, N/8]
  // in the same order
  awq,
  // GGUF blocks of 32 columns: data u8 [N, K/32 · bytes]
  q4_0,    // 18 bytes
  q4_1,    // 20
  q5_0,    // 22
  q5_1,    // 24
  q8_0,    // 34
  iq4_nl,  // 18
  mxfp4,   // 17
  // GGUF blocks of 256 columns: data u8 [N, K/256 · bytes]
  q4_k,  // 144 bytes
  q5_k,  // 176
  q6_k,  // 210
};

// The order of a weight's numbers after quire::pack_weight. One order belongs to one family of
// kernels; a kernel that cannot read it refuses, and says so. On the CPU a panel is some consecutive
// rows of W, all columns of it: docs/kernels/fused_qkv_cpu.md has the orders inside.
enum class WeightPacking : std::uint8_t {
  none,          // as the format says
  panels_8,      // cpu, 128-bit vectors
  panels_16,     // cpu, AVX2 and AMX
  panels_32,     // cpu, AVX-512
  quads_8,       // cpu, BFMMLA
  fragments_64,  // Hopper, int4, gptq and awq: docs/kernels/fused_qkv_hopper.md
};

// What the tensors of a packed weight no longer say.
struct PackedShape {
  std::int64_t rows = 0;           // N
  std::int64_t columns = 0;        // K
  DType dtype = DType::bf16;       // dense, fp8: of the numbers
  DType scale_dtype = DType::f32;  // int4, gptq, awq
  std::int64_t scale_group = 0;    // fp8: columns that share a scale, 0: all
  bool has_zeros = false;

  bool operator==(const PackedShape&) const = default;
};

struct QUIRE_API Weight {
  TensorView data;  // packed: u8 [packed_bytes], with scales, zeros and perm inside
  WeightFormat format = WeightFormat::dense;
  std::optional<TensorView> scale{};
  std::optional<TensorView> zeros{};
  // Act-order: column k of the stored weight multiplies x[:, perm[k]]; groups run over the stored
  // order.
  std::optional<TensorView> perm{};  // i32 [K]
  std::int64_t group_size = 0;       // int4, gptq, awq: 32, 64 or 128
  WeightPacking packing = WeightPacking::none;
  PackedShape packed{};  // if packing is not none

  std::int64_t rows() const;     // N
  std::int64_t columns() const;  // K
};

QUIRE_API std::string_view name(WeightFormat format);  // "gptq"
QUIRE_API std::optional<WeightFormat> weight_format_from_name(std::string_view text);
QUIRE_API std::string_view name(WeightPacking packing);  // "panels_16"
QUIRE_API std::optional<WeightPacking> weight_packing_from_name(std::string_view text);

}  // namespace quire
