// SPDX-License-Identifier: Apache-2.0
#include "quire/operand_checks.h"

#include <string>

#include "quire/error.h"

namespace quire {
namespace {

constexpr std::int64_t kRowLimit = kUnassignedRow;
constexpr std::int64_t kEncodedIndexLimit = std::int64_t{1} << 31;

[[noreturn]] void reject(const char* op, const std::string& argument, const std::string& expected,
                         const std::string& actual, ErrorCode code = ErrorCode::invalid_value) {
  throw Error(code, op, argument, expected, actual);
}

void require_equal(const char* op, const char* argument, std::int64_t expected,
                   std::int64_t actual) {
  if (expected != actual) reject(op, argument, std::to_string(expected), std::to_string(actual));
}

void require_dtype(const char* op, const char* argument, DType expected, DType actual) {
  if (expected == actual) return;
  reject(op, argument, std::string(name(expected)), std::string(name(actual)),
         ErrorCode::invalid_type);
}

constexpr const char* kPaged = "PagedKvOperand";

void check_scales(const KvLayerView& view, const KvOperandConfig& config) {
  const RowPart& part = view.row_format.parts[0];
  if (!config.quantization_enabled()) {
    if (view.row_format.uses_plane()) {
      reject(kPaged, "view", "a cache without scales, as configured", view.row_format.describe());
    }
    return;
  }
  if (!view.scales.defined() || part.scale_source != ScaleSource::plane) {
    reject(kPaged, "view.scales", "present, as configured", "none");
  }
  require_dtype(kPaged, "view.scales.dtype", config.scale_dtype, view.scales.dtype);
  require_equal(kPaged, "granularity", config.granularity, part.granularity);
  if (view.scales.num_slots < view.row_format.plane_slots()) {
    reject(kPaged, "view.scales.num_slots",
           "at least " + std::to_string(view.row_format.plane_slots()),
           std::to_string(view.scales.num_slots));
  }
}

void check_paged_shape(const KvLayerView& view, const KvOperandConfig& config) {
  if (config.page_size > 0) {
    require_equal(kPaged, "view.page_size", config.page_size, view.page_size);
  } else if (view.max_pages > 1) {
    reject(kPaged, "view.max_pages", "1 (page_size 0 means one slot per sequence)",
           std::to_string(view.max_pages));
  }
  require_dtype(kPaged, "view.dtype", config.dtype, view.row_format.parts[0].dtype);
  require_equal(kPaged, "view.row_bytes", bytes_for(config.dtype, config.head_dim),
                view.row_format.row_bytes);
}

std::int64_t row_stride_of(const KvLayerView& view) {
  if (view.token_stride_bytes < view.row_format.row_bytes) {
    reject(kPaged, "view.token_stride_bytes",
           "at least a row of " + std::to_string(view.row_format.row_bytes) + " bytes",
           std::to_string(view.token_stride_bytes));
  }
  return view.token_stride_bytes;
}

std::string shape_text(DType dtype, const char* shape) {
  return std::string(name(dtype)) + shape;
}

void check_tensor(const char* op, const char* argument, const TensorView& tensor, DType dtype,
                  int rank, const char* shape) {
  const bool fits = tensor.dtype == dtype && tensor.rank == rank;
  if (fits && tensor.has_dense_rows()) return;
  const ErrorCode code = tensor.dtype == dtype ? ErrorCode::invalid_value : ErrorCode::invalid_type;
  reject(op, argument, shape_text(dtype, shape) + " with contiguous rows", tensor.describe(), code);
}

// Presence must be what the config says; returns whether there is anything to check.
bool has_scales(const char* op, const TensorView* scales, const KvOperandConfig& config) {
  if (config.quantization_enabled() != (scales != nullptr)) {
    reject(op, "scales",
           config.quantization_enabled() ? "given, as configured" : "absent, as configured",
           scales == nullptr ? "none" : scales->describe());
  }
  return scales != nullptr;
}

void require_few_rows(const char* op, std::int64_t rows) {
  if (rows >= kRowLimit) reject(op, "values", "of less than 2^30 rows", std::to_string(rows));
}

}  // namespace

std::uint32_t checked_rows_per_page_stride(const KvLayerView& view, const KvOperandConfig& config) {
  check_paged_shape(view, config);
  check_scales(view, config);
  const std::int64_t row_stride = row_stride_of(view);
  if (view.page_stride_bytes % row_stride != 0) {
    reject(kPaged, "view.page_stride_bytes",
           "a multiple of the token stride of " + std::to_string(row_stride) + " bytes",
           std::to_string(view.page_stride_bytes));
  }
  const std::int64_t rows = view.page_stride_bytes / row_stride;
  // Divided, not multiplied: a pool of absurd size must not overflow the check itself.
  if (rows > 0 && view.num_pages > (kRowLimit - 1) / rows) {
    reject(kPaged, "view.num_pages",
           "at most " + std::to_string((kRowLimit - 1) / rows) + " (rows stay below 2^30)",
           std::to_string(view.num_pages));
  }
  if (view.page_size > 0 && view.num_pages > (kEncodedIndexLimit - 1) / view.page_size) {
    reject(kPaged, "view.num_pages", "such that num_pages * page_size is below 2^31",
           std::to_string(view.num_pages));
  }
  return static_cast<std::uint32_t>(rows);
}

void check_contiguous_operand(const TensorView& values, const TensorView* scales,
                              const KvOperandConfig& config) {
  constexpr const char* kOp = "ContiguousOperand";
  check_tensor(kOp, "values", values, config.dtype, 4, "[batch, sequence, heads, head_dim]");
  require_equal(kOp, "values.shape[3]", config.head_dim, values.shape[3]);
  if (values.shape[0] > 1) {
    require_equal(kOp, "values.strides[0]", values.shape[1] * values.strides[1], values.strides[0]);
  }
  require_few_rows(kOp, values.shape[0] * values.shape[1]);
  if (!has_scales(kOp, scales, config)) return;
  check_tensor(kOp, "scales", *scales, config.scale_dtype, 4, "[batch, sequence, heads, slots]");
  for (int dim = 0; dim < 3; ++dim) {
    if (scales->shape[dim] == values.shape[dim]) continue;
    reject(kOp, "scales", "[batch, sequence, heads, slots] of values " + values.describe(),
           scales->describe());
  }
  const std::int64_t slots = (config.head_dim + config.granularity - 1) / config.granularity;
  require_equal(kOp, "scales.shape[3]", slots, scales->shape[3]);
  if (!scales->is_contiguous()) reject(kOp, "scales", "contiguous", "a strided view");
}

void check_ragged_operand(const TensorView& values, const TensorView& row_offsets,
                          const TensorView* scales, const KvOperandConfig& config) {
  constexpr const char* kOp = "RaggedOperand";
  check_tensor(kOp, "values", values, config.dtype, 3, "[tokens, heads, head_dim]");
  require_equal(kOp, "values.shape[2]", config.head_dim, values.shape[2]);
  require_few_rows(kOp, values.shape[0]);
  check_tensor(kOp, "row_offsets", row_offsets, DType::u32, 1, "[batch + 1]");
  if (row_offsets.shape[0] < 1) {
    reject(kOp, "row_offsets", "u32[batch + 1]", row_offsets.describe());
  }
  if (!has_scales(kOp, scales, config)) return;
  require_equal(kOp, "granularity", config.head_dim, config.granularity);
  check_tensor(kOp, "scales", *scales, config.scale_dtype, 2, "[1 or heads, tokens]");
  const bool heads_fit = scales->shape[0] == 1 || scales->shape[0] == values.shape[1];
  if (!heads_fit || scales->shape[1] != values.shape[0]) {
    reject(kOp, "scales", "[1 or heads, tokens] of values " + values.describe(),
           scales->describe());
  }
}

void throw_unaligned_tile(std::int64_t base_row, std::int64_t alignment) {
  reject("populate", "base_row", "a multiple of " + std::to_string(alignment),
         std::to_string(base_row));
}

}  // namespace quire
