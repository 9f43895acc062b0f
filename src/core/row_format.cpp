// SPDX-License-Identifier: Apache-2.0
#include "quire/row_format.h"

namespace quire {
namespace {

std::int32_t part_bytes(DType dtype, std::int32_t width) {
  return static_cast<std::int32_t>(bytes_for(dtype, width));
}

std::string describe_scale(const RowPart& part) {
  if (part.scale_source == ScaleSource::none) return "";
  return " (" + std::string(name(part.scale_dtype)) + " scale per " +
         std::to_string(part.granularity) +
         (part.scale_source == ScaleSource::in_row ? " in row)" : ")");
}

}  // namespace

RowFormat RowFormat::uniform(DType dtype, std::int32_t width) {
  RowFormat format;
  format.num_parts = 1;
  format.parts[0] = {.dtype = dtype, .width = width};
  format.row_bytes = part_bytes(dtype, width);
  return format;
}

RowFormat RowFormat::scaled(DType dtype, std::int32_t width, std::int32_t granularity,
                            DType scale_dtype) {
  RowFormat format = uniform(dtype, width);
  format.parts[0].scale_source = ScaleSource::plane;
  format.parts[0].granularity = granularity;
  format.parts[0].scale_dtype = scale_dtype;
  return format;
}

RowFormat RowFormat::mla_fp8_token(std::int32_t latent, std::int32_t rope, DType rope_dtype) {
  RowFormat format;
  format.num_parts = 2;
  format.parts[0] = {.dtype = DType::fp8_e4m3,
                     .width = latent,
                     .scale_source = ScaleSource::plane,
                     .granularity = latent + rope};
  format.parts[1] = {.dtype = rope_dtype,
                     .width = rope,
                     .offset_bytes = latent,
                     .scale_source = ScaleSource::plane,
                     .granularity = latent + rope};
  format.row_bytes = latent + part_bytes(rope_dtype, rope);
  return format;
}

RowFormat RowFormat::mla_fp8_block(std::int32_t latent, std::int32_t rope, std::int32_t block,
                                   DType rope_dtype) {
  const std::int32_t num_scales = (latent + block - 1) / block;
  const std::int32_t rope_offset = latent + num_scales * part_bytes(DType::f32, 1);
  RowFormat format;
  format.num_parts = 2;
  format.parts[0] = {.dtype = DType::fp8_e4m3,
                     .width = latent,
                     .scale_source = ScaleSource::in_row,
                     .granularity = block,
                     .scale_offset_bytes = latent};
  format.parts[1] = {.dtype = rope_dtype, .width = rope, .offset_bytes = rope_offset};
  format.row_bytes = rope_offset + part_bytes(rope_dtype, rope);
  return format;
}

std::string RowFormat::describe() const {
  std::string text;
  for (std::int32_t p = 0; p < num_parts; ++p) {
    if (p > 0) text += " + ";
    text += std::string(name(parts[p].dtype)) + "x" + std::to_string(parts[p].width) +
            describe_scale(parts[p]);
  }
  return text + ", " + std::to_string(row_bytes) + " B";
}

}  // namespace quire
