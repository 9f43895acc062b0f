// SPDX-License-Identifier: Apache-2.0
// Random projection weights of every format and any size, for the tests of fused_qkv_matmul.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "core/block_format.h"
#include "quire/context.h"
#include "quire/pack_weight.h"
#include "support/block_factors.h"
#include "support/host_tensor.h"

namespace quire::cpu {

enum class Fp8Scale { tensor, channel, block };

struct WeightKind {
  std::string name;
  WeightFormat format;
  DType dtype;                        // dense, fp8: of the numbers
  Fp8Scale scale = Fp8Scale::tensor;  // fp8
  std::int64_t group = 0;             // int4, gptq, awq
  bool has_zeros = false;             // int4, gptq, awq
  DType scale_dtype = DType::f16;     // int4, gptq, awq
};

inline const WeightKind kWeightKinds[] = {
    {"f32", WeightFormat::dense, DType::f32},
    {"f16", WeightFormat::dense, DType::f16},
    {"bf16", WeightFormat::dense, DType::bf16},
    {"e4m3_tensor", WeightFormat::fp8, DType::fp8_e4m3, Fp8Scale::tensor},
    {"e4m3_channel", WeightFormat::fp8, DType::fp8_e4m3, Fp8Scale::channel},
    {"e4m3_block", WeightFormat::fp8, DType::fp8_e4m3, Fp8Scale::block},
    {"e5m2_channel", WeightFormat::fp8, DType::fp8_e5m2, Fp8Scale::channel},
    {"e5m2_block", WeightFormat::fp8, DType::fp8_e5m2, Fp8Scale::block},
    {"int4_32", WeightFormat::int4, DType::u4, {}, 32, true},
    {"int4_64", WeightFormat::int4, DType::u4, {}, 64, false, DType::f32},
    {"int4_128", WeightFormat::int4, DType::u4, {}, 128, true, DType::bf16},
    {"gptq_32", WeightFormat::gptq, DType::i32, {}, 32, false, DType::bf16},
    {"gptq_128", WeightFormat::gptq, DType::i32, {}, 128, true, DType::bf16},
    {"gptq_v2_32", WeightFormat::gptq_v2, DType::i32, {}, 32, true, DType::bf16},
    {"awq_64", WeightFormat::awq, DType::i32, {}, 64, true, DType::bf16},
    {"q4_0", WeightFormat::q4_0, DType::u8},
    {"q4_1", WeightFormat::q4_1, DType::u8},
    {"q5_0", WeightFormat::q5_0, DType::u8},
    {"q5_1", WeightFormat::q5_1, DType::u8},
    {"q8_0", WeightFormat::q8_0, DType::u8},
    {"iq4_nl", WeightFormat::iq4_nl, DType::u8},
    {"mxfp4", WeightFormat::mxfp4, DType::u8},
    {"q4_k", WeightFormat::q4_k, DType::u8},
    {"q5_k", WeightFormat::q5_k, DType::u8},
    {"q6_k", WeightFormat::q6_k, DType::u8},
};

inline const WeightKind& kind_named(std::string_view name) {
  return *std::ranges::find(kWeightKinds, name, &WeightKind::name);
}

// K is a multiple of this many columns.
inline std::int64_t depth_unit(const WeightKind& kind) {
  if (const BlockFormat* block = find_block_format(kind.format)) return block->columns;
  return is_grouped_format(kind.format) ? kind.group : 1;
}

inline void fill_randomly(test::HostTensor& tensor, std::uint64_t seed, int mask = 255) {
  for (std::byte& byte : tensor.bytes()) {
    const double uniform = test::next_uniform(seed);  // −1 … 1
    byte = static_cast<std::byte>(static_cast<int>(127.9 + 127.9 * uniform) & mask);
  }
}

// Owns a weight [rows, columns]; rows is a multiple of 8 for gptq and awq.
class ProjectionWeight {
 public:
  ProjectionWeight(const WeightKind& kind, std::int64_t rows, std::int64_t columns)
      : rows_(rows), columns_(columns) {
    plain.format = kind.format;
    if (kind.format == WeightFormat::dense) {
      data_ = test::HostTensor::random(kind.dtype, {rows, columns}, 1, 0.1);
    } else if (kind.format == WeightFormat::fp8) {
      fill_fp8(kind);
    } else if (is_block_format(kind.format)) {
      fill_gguf(kind.format);
    } else {
      fill_groups(kind);
    }
    plain.data = data_.view();
  }
  ProjectionWeight(ProjectionWeight&&) = default;  // a copy would look into the memory of the other

  // Act-order.
  void permute() {
    perm_ = test::HostTensor(DType::i32, {columns_});
    auto* order = perm_.view().as<std::int32_t>();
    std::iota(order, order + columns_, 0);
    std::uint64_t seed = 8;
    for (std::int64_t k = columns_ - 1; k > 0; --k) {
      const double part = 0.5 + 0.5 * test::next_uniform(seed);  // 0 … 1
      std::swap(order[k], order[static_cast<std::int64_t>(part * static_cast<double>(k + 1))]);
    }
    plain.perm = perm_.view();
  }

  // Lives as long as this object, until the next call.
  Weight packed(const Context& context) {
    const std::int64_t bytes = packed_bytes(plain, context);
    storage_ = test::HostTensor(DType::u8, {bytes + 64});
    auto* start = storage_.view().as<std::byte>();
    start += (64 - reinterpret_cast<std::uintptr_t>(start) % 64) % 64;
    return pack_weight(plain, TensorView::contiguous(start, DType::u8, {bytes}), context);
  }

  Weight plain;

 private:
  void fill_fp8(const WeightKind& kind) {
    data_ = test::HostTensor::random(kind.dtype, {rows_, columns_}, 1, 100.0);
    const bool is_block = kind.scale == Fp8Scale::block;
    const std::int64_t scale_rows = is_block                          ? (rows_ + 127) / 128
                                    : kind.scale == Fp8Scale::channel ? rows_
                                                                      : 1;
    scale_ = test::HostTensor::random(DType::f32,
                                      {scale_rows, is_block ? (columns_ + 127) / 128 : 1}, 2, 0.1);
    plain.scale = scale_.view();
  }

  void fill_gguf(WeightFormat format) {
    const BlockFormat& block = block_format(format);
    data_ = test::HostTensor(DType::u8, {rows_, columns_ / block.columns * block.bytes});
    fill_randomly(data_, 3);
    std::uint64_t seed = 4;
    for (std::int64_t at = 0; at < data_.view().numel(); at += block.bytes) {
      test::store_block_factors(block, 0.01, seed, data_.view().as<std::byte>() + at);
    }
  }

  void fill_groups(const WeightKind& kind) {
    const std::int64_t groups = columns_ / kind.group;
    const bool is_int4 = kind.format == WeightFormat::int4;
    const bool is_awq = kind.format == WeightFormat::awq;
    data_ = is_int4  ? test::HostTensor(DType::u4, {rows_, columns_})
            : is_awq ? test::HostTensor(DType::i32, {columns_, rows_ / 8})
                     : test::HostTensor(DType::i32, {columns_ / 8, rows_});
    fill_randomly(data_, 5);
    scale_ = is_int4 ? test::HostTensor::random(kind.scale_dtype, {rows_, groups}, 6, 0.1)
                     : test::HostTensor::random(kind.scale_dtype, {groups, rows_}, 6, 0.1);
    plain.scale = scale_.view();
    plain.group_size = kind.group;
    if (!kind.has_zeros) return;
    zeros_ = is_int4 ? test::HostTensor(DType::u8, {rows_, groups})
                     : test::HostTensor(DType::i32, {groups, rows_ / 8});
    fill_randomly(zeros_, 7, is_int4 ? 15 : 255);
    plain.zeros = zeros_.view();
  }

  std::int64_t rows_, columns_;
  test::HostTensor data_, scale_, zeros_, perm_, storage_;
};

}  // namespace quire::cpu
