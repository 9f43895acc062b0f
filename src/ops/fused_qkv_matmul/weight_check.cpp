// SPDX-License-Identifier: Apache-2.0
#include "ops/fused_qkv_matmul/weight_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <vector>

#include "core/block_format.h"
#include "cpu/fused_qkv_matmul/pack_weight.h"
#include "cuda/kernels.h"
#include "ops/memory_span.h"

namespace quire::ops {
namespace {

constexpr std::int64_t kScaleBlock = 128;
constexpr std::int64_t kCodesPerWord = 8;  // 4-bit codes in an i32

void require(const Arguments& check, const char* name, const std::optional<TensorView>& part,
             bool is_needed, WeightFormat format) {
  if (part.has_value() == is_needed) return;
  check.fail(name,
             fmt::format("{} for weights of format {}", is_needed ? "given" : "absent",
                         quire::name(format)),
             part.has_value() ? part->describe() : "none");
}

void check_fp8(Arguments& check, const Weight& weight, std::int64_t rows, std::int64_t columns) {
  check.tensor("weight", weight.data).is(kFp8Types, {rows, columns}).has_dense_rows();
  require(check, "weight.scale", weight.scale, true, weight.format);
  const TensorView& scale = *weight.scale;
  const TensorArgument argument = check.tensor("weight.scale", scale);
  argument.is(DType::f32, {"rows", "columns"});
  const std::int64_t row_blocks = ceil_div(rows, kScaleBlock);
  const std::int64_t column_blocks = ceil_div(columns, kScaleBlock);
  const bool per_row = scale.shape[1] == 1 && (scale.shape[0] == 1 || scale.shape[0] == rows);
  const bool per_block = scale.shape[0] == row_blocks && scale.shape[1] == column_blocks;
  if (!per_row && !per_block) {
    check.fail("weight.scale",
               fmt::format("f32[1, 1], f32[{}, 1] or f32[{}, {}]", rows, row_blocks, column_blocks),
               scale.describe());
  }
  argument.is_finite();
}

void check_group_size(const Arguments& check, const Weight& weight, std::int64_t columns) {
  const std::int64_t size = weight.group_size;
  if (size != 32 && size != 64 && size != 128) {
    check.fail("weight.group_size", "32, 64 or 128", std::to_string(size));
  }
  if (columns % size != 0) {
    check.fail("weight.group_size", fmt::format("a divisor of {} columns", columns),
               std::to_string(size));
  }
}

void check_int4(Arguments& check, const Weight& weight, std::int64_t rows, std::int64_t columns) {
  const std::int64_t groups = columns / weight.group_size;
  check.tensor("weight", weight.data).is(DType::u4, {rows, columns}).has_dense_rows();
  if (weight.data.strides[0] % 2 != 0) {
    check.fail("weight", "of rows that start on a whole byte",
               fmt::format("a row stride of {} codes", weight.data.strides[0]));
  }
  check.tensor("weight.scale", *weight.scale).is(kActivations, {rows, groups}).is_finite();
  if (weight.zeros.has_value()) {
    check.tensor("weight.zeros", *weight.zeros).is(DType::u8, {rows, groups});
  }
}

// GPTQ packs codes along K, AWQ along N; zeros are packed along N in both.
void check_packed(Arguments& check, const Weight& weight, std::int64_t rows, std::int64_t columns) {
  const bool is_awq = weight.format == WeightFormat::awq;
  const std::int64_t groups = columns / weight.group_size;
  if (rows % kCodesPerWord != 0 && (is_awq || weight.zeros.has_value())) {
    check.fail("weight", fmt::format("of a multiple of {} rows", kCodesPerWord),
               std::to_string(rows));
  }
  const TensorArgument data = check.tensor("weight", weight.data);
  if (is_awq) {
    data.is(DType::i32, {columns, rows / kCodesPerWord}).has_dense_rows();
  } else {
    data.is(DType::i32, {columns / kCodesPerWord, rows}).has_dense_rows();
  }
  check.tensor("weight.scale", *weight.scale).is(kActivations, {groups, rows}).is_finite();
  if (weight.zeros.has_value()) {
    check.tensor("weight.zeros", *weight.zeros).is(DType::i32, {groups, rows / kCodesPerWord});
  }
}

void check_gguf(Arguments& check, const Weight& weight, std::int64_t rows, std::int64_t columns) {
  const BlockFormat& block = block_format(weight.format);
  if (columns % block.columns != 0) {
    check.fail(
        "weight",
        fmt::format("of a multiple of {} columns for {}", block.columns, name(weight.format)),
        std::to_string(columns));
  }
  const std::int64_t row_bytes = columns / block.columns * block.bytes;
  check.tensor("weight", weight.data).is(DType::u8, {rows, row_bytes}).has_dense_rows();
}

bool is_one_of(DType dtype, std::span<const DType> dtypes) {
  return std::ranges::find(dtypes, dtype) != dtypes.end();
}

// The sizes and dtypes that decide where kernels look in the storage.
void check_packed_shape(const Arguments& check, const Weight& weight) {
  constexpr std::int64_t kMostNumbers = std::int64_t{1} << 56;
  const PackedShape& shape = weight.packed;
  const bool has_size = shape.rows >= 0 && shape.columns >= 0 &&
                        (shape.columns == 0 || shape.rows <= kMostNumbers / shape.columns);
  if (!has_size) {
    check.fail("weight", "packed from at most 2^56 numbers",
               fmt::format("packed from [{}, {}]", shape.rows, shape.columns));
  }
  if (is_grouped_format(weight.format)) check_group_size(check, weight, shape.columns);
  const bool has_dtype =
      (weight.format != WeightFormat::dense || is_one_of(shape.dtype, kActivations)) &&
      (weight.format != WeightFormat::fp8 || is_one_of(shape.dtype, kFp8Types)) &&
      is_one_of(shape.scale_dtype, kActivations);
  if (!has_dtype) {
    check.fail_type(
        "weight", fmt::format("packed from the dtypes of {}", name(weight.format)),
        fmt::format("{} with scales of {}", name(shape.dtype), name(shape.scale_dtype)));
  }
  if (shape.scale_group != 0 && shape.scale_group != kScaleBlock) {
    check.fail("weight", fmt::format("packed with a scale for 0 (all) or {} columns", kScaleBlock),
               std::to_string(shape.scale_group));
  }
}

// Everything was checked when the weight was packed, except what the caller may have mixed up since.
void check_packed_weight(Arguments& check, const Weight& weight, std::int64_t rows,
                         std::int64_t columns) {
  const TensorArgument data = check.tensor("weight", weight.data);
  data.is(DType::u8, {"bytes"}).has_dense_rows();
  const std::int64_t bytes = packed_size(check, weight);
  if (weight.data.shape[0] < bytes) {
    check.fail("weight", fmt::format("of at least {} bytes, as pack_weight filled it", bytes),
               weight.data.describe());
  }
  if (weight.packed.rows != rows || weight.packed.columns != columns) {
    check.fail("weight", fmt::format("packed from [{}, {}]", rows, columns),
               fmt::format("packed from [{}, {}]", weight.packed.rows, weight.packed.columns));
  }
  require(check, "weight.scale", weight.scale, false, weight.format);
  require(check, "weight.zeros", weight.zeros, false, weight.format);
}

void check_perm(Arguments& check, const TensorView& perm, std::int64_t columns) {
  check.tensor("weight.perm", perm).is(DType::i32, {columns}).has_dense_rows();
  if (!is_on_host(perm)) return;
  std::vector<bool> seen(static_cast<std::size_t>(columns));
  for (std::int64_t k = 0; k < columns; ++k) {
    const std::int64_t source = perm.as<const std::int32_t>()[k];
    const bool is_new = source >= 0 && source < columns && !seen[static_cast<std::size_t>(source)];
    if (!is_new) {
      check.fail("weight.perm", fmt::format("a permutation of 0 … {}", columns - 1),
                 fmt::format("{} at [{}]", source, k));
    }
    seen[static_cast<std::size_t>(source)] = true;
  }
}

}  // namespace

void check_weight(Arguments& check, const Weight& weight, std::int64_t rows, std::int64_t columns) {
  if (weight.packing != WeightPacking::none) {
    check_packed_weight(check, weight, rows, columns);
    if (weight.perm.has_value()) check_perm(check, *weight.perm, columns);
    return;
  }
  switch (weight.format) {
    case WeightFormat::dense:
      require(check, "weight.scale", weight.scale, false, weight.format);
      check.tensor("weight", weight.data).is(kActivations, {rows, columns}).has_dense_rows();
      break;
    case WeightFormat::fp8:
      check_fp8(check, weight, rows, columns);
      break;
    case WeightFormat::int4:
    case WeightFormat::gptq:
    case WeightFormat::gptq_v2:
    case WeightFormat::awq:
      check_group_size(check, weight, columns);
      require(check, "weight.scale", weight.scale, true, weight.format);
      if (weight.format == WeightFormat::int4) {
        check_int4(check, weight, rows, columns);
      } else {
        check_packed(check, weight, rows, columns);
      }
      break;
    default:
      require(check, "weight.scale", weight.scale, false, weight.format);
      check_gguf(check, weight, rows, columns);
  }
  if (!is_grouped_format(weight.format))
    require(check, "weight.zeros", weight.zeros, false, weight.format);
  if (weight.perm.has_value()) check_perm(check, *weight.perm, columns);
}

std::int64_t packed_size(const Arguments& check, const Weight& weight) {
  check_packed_shape(check, weight);
  const bool has_perm = weight.perm.has_value();
  return weight.packing == WeightPacking::fragments_64
             ? cuda::sm90::fused_qkv_matmul::packed_bytes(weight, has_perm)
             : cpu::packed_bytes(weight, has_perm);
}

}  // namespace quire::ops
