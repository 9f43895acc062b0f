// SPDX-License-Identifier: Apache-2.0
#include "quire/row_runs.h"

#include <string>

#include "quire/contiguous_operand.h"
#include "quire/error.h"
#include "quire/ragged_operand.h"

namespace quire {
namespace {

constexpr const char* kRagged = "RaggedOperand";
constexpr const char* kContiguous = "ContiguousOperand";

[[noreturn]] void reject(const char* operand, const std::string& argument,
                         const std::string& expected, const std::string& actual,
                         ErrorCode code = ErrorCode::invalid_value) {
  throw Error(code, operand, argument, expected, actual);
}

void check_rank(const char* operand, const TensorView& values, int rank, const char* shape) {
  if (values.rank == rank && values.has_dense_rows()) return;
  reject(operand, "values", std::string(shape) + " with contiguous rows", values.describe());
}

RowFormat format_of(const TensorView& values, const RowExtras& extras) {
  if (extras.format) return *extras.format;
  const auto width = static_cast<std::int32_t>(values.shape[values.rank - 1]);
  if (!extras.scales) return RowFormat::uniform(values.dtype, width);
  const std::int64_t slots = extras.scales->shape[extras.scales->rank - 1];
  const auto granularity =
      static_cast<std::int32_t>(slots > 0 ? (width + slots - 1) / slots : width);
  return RowFormat::scaled(values.dtype, width, granularity, extras.scales->dtype);
}

void check_scales(const char* operand, const TensorView& values, const RowFormat& format,
                  const std::optional<TensorView>& scales) {
  if (scales.has_value() != format.uses_plane()) {
    reject(operand, "scales", format.uses_plane() ? "given" : "absent: the format has none",
           scales ? scales->describe() : "none");
  }
  if (!scales) return;
  bool fits = scales->rank == values.rank && is_float(scales->dtype);
  for (int dim = 0; fits && dim + 1 < values.rank; ++dim) {
    fits = scales->shape[dim] == values.shape[dim];
  }
  if (!fits || scales->shape[scales->rank - 1] < format.plane_slots()) {
    reject(operand, "scales",
           "of the values' shape " + values.describe() + " with " +
               std::to_string(format.plane_slots()) + " slots for columns",
           scales->describe());
  }
}

std::int64_t stride_bytes(const TensorView& tensor, int dim) {
  return bytes_for(tensor.dtype, tensor.strides[static_cast<std::size_t>(dim)]);
}

}  // namespace

RowRuns RowRuns::of(const char* operand, const TensorView& values, const RowExtras& extras) {
  const int heads_dim = values.rank - 2;
  const RowFormat format = format_of(values, extras);
  if (bytes_for(values.dtype, values.shape[values.rank - 1]) != format.row_bytes) {
    reject(operand, "values", "rows of " + std::to_string(format.row_bytes) + " bytes",
           values.describe());
  }
  check_scales(operand, values, format, extras.scales);
  RowRuns runs{.data = values.as<std::byte>(),
               .layout = {.format = format},
               .heads = {.count = values.shape[heads_dim],
                         .row_stride_bytes = stride_bytes(values, heads_dim)},
               .row_stride_bytes = stride_bytes(values, heads_dim - 1)};
  if (!extras.scales) return runs;
  const TensorView& scales = *extras.scales;
  runs.planes = scales.as<std::byte>();
  runs.layout.plane = {.dtype = scales.dtype, .slot_stride = scales.strides[scales.rank - 1]};
  runs.heads.plane_stride_bytes = stride_bytes(scales, heads_dim);
  runs.plane_stride_bytes = stride_bytes(scales, heads_dim - 1);
  return runs;
}

void RowRuns::locate(const Run& run, std::int64_t head, std::int64_t first, std::int64_t count,
                     RowAddress* rows) const {
  std::byte* row =
      data + run.offset_bytes + first * row_stride_bytes + head * heads.row_stride_bytes;
  std::byte* plane = planes == nullptr
                         ? nullptr
                         : planes + run.plane_offset_bytes + first * plane_stride_bytes +
                               head * heads.plane_stride_bytes;
  for (std::int64_t i = 0; i < count; ++i) {
    rows[i] = {};
    if (first + i >= run.num_keys) continue;
    rows[i].row = row + i * row_stride_bytes;
    if (plane != nullptr) rows[i].plane = plane + i * plane_stride_bytes;
  }
}

RowMatrix RowRuns::row_matrix(const char* operand, std::int64_t num_rows) const {
  if (num_rows >= kUnassignedRow) {
    reject(operand, "values", "of less than 2^30 rows", std::to_string(num_rows));
  }
  const DType dtype = layout.format.parts[0].dtype;
  return {.dtype = dtype,
          .num_rows = num_rows,
          .num_heads = heads.count,
          .row_width = std::int64_t{layout.format.row_bytes} * 8 / bits(dtype),
          .row_stride_bytes = row_stride_bytes,
          .head_stride_bytes = heads.row_stride_bytes};
}

RaggedOperand::RaggedOperand(const TensorView& values, const TensorView& row_offsets,
                             const RowExtras& extras) {
  check_rank(kRagged, values, 3, "[tokens, heads, row]");
  if (row_offsets.dtype != DType::u32) {
    reject(kRagged, "row_offsets", "u32[batch + 1]", row_offsets.describe(),
           ErrorCode::invalid_type);
  }
  if (row_offsets.rank != 1 || row_offsets.shape[0] < 1 || row_offsets.strides[0] != 1) {
    reject(kRagged, "row_offsets", "u32[batch + 1]", row_offsets.describe());
  }
  rows_ = RowRuns::of(kRagged, values, extras);
  offsets_ = row_offsets.as<const std::uint32_t>();
  num_rows_ = values.shape[0];
}

void RaggedOperand::locate(std::int64_t sequence, std::int64_t head, std::int64_t first,
                           std::int64_t count, RowAddress* rows) const {
  const std::int64_t start = offsets_[sequence];
  rows_.locate({.offset_bytes = start * rows_.row_stride_bytes,
                .plane_offset_bytes = start * rows_.plane_stride_bytes,
                .num_keys = num_keys(sequence, 0)},
               head, first, count, rows);
}

RowMatrix RaggedOperand::row_matrix() const {
  return rows_.row_matrix(kRagged, num_rows_);
}

ContiguousOperand::ContiguousOperand(const TensorView& values, const RowExtras& extras) {
  check_rank(kContiguous, values, 4, "[batch, length, heads, row]");
  rows_ = RowRuns::of(kContiguous, values, extras);
  batch_ = values.shape[0];
  length_ = values.shape[1];
  sequence_stride_bytes_ = stride_bytes(values, 0);
  if (extras.scales) plane_sequence_stride_bytes_ = stride_bytes(*extras.scales, 0);
}

void ContiguousOperand::locate(std::int64_t sequence, std::int64_t head, std::int64_t first,
                               std::int64_t count, RowAddress* rows) const {
  rows_.locate({.offset_bytes = sequence * sequence_stride_bytes_,
                .plane_offset_bytes = sequence * plane_sequence_stride_bytes_,
                .num_keys = length_},
               head, first, count, rows);
}

RowMatrix ContiguousOperand::row_matrix() const {
  if (batch_ > 1 && sequence_stride_bytes_ != length_ * rows_.row_stride_bytes) {
    reject(kContiguous, "values", "sequences that follow each other without a gap",
           "a sequence stride of " + std::to_string(sequence_stride_bytes_) + " bytes");
  }
  return rows_.row_matrix(kContiguous, batch_ * length_);
}

}  // namespace quire
