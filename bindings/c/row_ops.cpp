// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "op.h"
#include "quire/c/rows.h"
#include "quire/ops/copy_pages.h"
#include "quire/ops/quantize_fp8.h"
#include "quire/ops/rms_norm.h"
#include "quire/ops/rope.h"
#include "quire/ops/row_offsets.h"
#include "quire/ops/store.h"

namespace quire::c {
namespace {

std::vector<std::int64_t> read_sections(const Reader& in, const quire_rope_args& from) {
  constexpr std::int64_t kMost = 1024;  // more than any head has pairs of columns
  if (from.num_mrope_sections < 0 || from.num_mrope_sections > kMost) {
    in.fail("num_mrope_sections", "from 0 to " + std::to_string(kMost),
            std::to_string(from.num_mrope_sections));
  }
  if (from.num_mrope_sections > 0 && from.mrope_sections == nullptr) {
    in.fail("mrope_sections", std::to_string(from.num_mrope_sections) + " numbers", "NULL");
  }
  return {from.mrope_sections, from.mrope_sections + from.num_mrope_sections};
}

RopeArgs read_rope(const Reader& in, const quire_rope_args& from) {
  static const RopeArgs defaults{};
  in.is_zero("reserved", from.reserved);
  return {
      .q = in.tensor("q", from.q),
      .row_offsets = in.indices("row_offsets", from.row_offsets),
      .cache = in.cache("cache", from.cache),
      .layer = from.layer,
      .freqs_cis = in.tensor("freqs_cis", from.freqs_cis),
      .interleaved = in.flag("interleaved", from.interleaved),
      .inverse = in.flag("inverse", from.inverse),
      .position_ids = in.optional_indices("position_ids", from.position_ids),
      .mrope_sections = read_sections(in, from),
      .rotate_key = !in.flag("q_only", from.q_only),
      .q_gamma = in.optional_tensor("q_gamma", from.q_gamma),
      .key_gamma = in.optional_tensor("key_gamma", from.key_gamma),
      .epsilon = given_or(from.epsilon, defaults.epsilon),
      .weight_offset = from.weight_offset,
      .out = in.tensor("out", from.out),
  };
}

template <KvSide kSide>
RmsNormArgs read_rms_norm(const Reader& in, const quire_rms_norm_args& from) {
  static const RmsNormArgs defaults{};
  return {
      .cache = in.cache("cache", from.cache),
      .layer = from.layer,
      .side = kSide,
      .row_offsets = in.indices("row_offsets", from.row_offsets),
      .gamma = in.tensor("gamma", from.gamma),
      .epsilon = given_or(from.epsilon, defaults.epsilon),
      .weight_offset = from.weight_offset,
      .per_head = !in.flag("whole_token", from.whole_token),
      .multiply_before_cast = !in.flag("cast_before_multiply", from.cast_before_multiply),
  };
}

StoreArgs read_store(const Reader& in, const quire_store_args& from) {
  in.is_zero("reserved", from.reserved);
  return {
      .x = in.tensor("x", from.x),
      .row_offsets = from.slots == nullptr ? in.indices("row_offsets", from.row_offsets)
                                           : TensorView{},  // which slots take the place of
      .cache = in.cache("cache", from.cache),
      .layer = from.layer,
      .side = in.side(from.side),
      .value = in.optional_tensor("value", from.value),
      .slots = in.optional_tensor("slots", from.slots),
  };
}

StoreScalesArgs read_store_scales(const Reader& in, const quire_store_scales_args& from) {
  in.is_zero("reserved", from.reserved);
  return {
      .scales = in.tensor("scales", from.scales),
      .row_offsets = in.indices("row_offsets", from.row_offsets),
      .cache = in.cache("cache", from.cache),
      .layer = from.layer,
      .side = in.side(from.side),
  };
}

CopyPagesArgs read_copy_pages(const Reader& in, const quire_copy_pages_args& from) {
  return {.cache = in.cache("cache", from.cache), .pairs = in.indices("pairs", from.pairs)};
}

QuantizeFp8Args read_quantize_fp8(const Reader& in, const quire_quantize_fp8_args& from) {
  in.is_zero("reserved", from.reserved);
  static const QuantizeFp8Args defaults{};
  return {
      .x = in.tensor("x", from.x),
      .group_size = given_or(from.group_size, defaults.group_size),
      .scale_upper_bound = given_or(from.scale_upper_bound, defaults.scale_upper_bound),
      .scale_rounding = in.scale_rounding(from.scale_rounding, defaults.scale_rounding),
      .out = in.tensor("out", from.out),
      .scale = in.tensor("scale", from.scale),
  };
}

RowOffsetsArgs read_row_offsets(const Reader& in, const quire_row_offsets_args& from) {
  return {
      .row_offsets = in.indices("row_offsets", from.row_offsets),
      .cache_lengths = in.indices("cache_lengths", from.cache_lengths),
      .out = in.indices("out", from.out),
  };
}

void run_rms_norm_key(const RmsNormArgs& args, const Context& context) {
  rms_norm_key(args, context);
}
void run_rms_norm_value(const RmsNormArgs& args, const Context& context) {
  rms_norm_value(args, context);
}

constexpr Op<quire_rope_args, RopeArgs> kRope(
    "rope", {.required = offsetof(quire_rope_args, position_ids), .read = read_rope, .run = rope});
constexpr Op<quire_rms_norm_args, RmsNormArgs> kRmsNormKey(
    "rms_norm_key", {.required = offsetof(quire_rms_norm_args, epsilon),
                     .read = read_rms_norm<KvSide::key>,
                     .run = run_rms_norm_key});
constexpr Op<quire_rms_norm_args, RmsNormArgs> kRmsNormValue(
    "rms_norm_value", {.required = offsetof(quire_rms_norm_args, epsilon),
                       .read = read_rms_norm<KvSide::value>,
                       .run = run_rms_norm_value});
constexpr Op<quire_store_args, StoreArgs> kStore(
    "store", {.required = offsetof(quire_store_args, side), .read = read_store, .run = store});
constexpr Op<quire_store_scales_args, StoreScalesArgs> kStoreScales(
    "store_scales", {.required = offsetof(quire_store_scales_args, side),
                     .read = read_store_scales,
                     .run = store_scales});
constexpr Op<quire_copy_pages_args, CopyPagesArgs> kCopyPages(
    "copy_pages",
    {.required = sizeof(quire_copy_pages_args), .read = read_copy_pages, .run = copy_pages});
constexpr Op<quire_quantize_fp8_args, QuantizeFp8Args> kQuantizeFp8(
    "quantize_fp8", {.required = offsetof(quire_quantize_fp8_args, group_size),
                     .read = read_quantize_fp8,
                     .run = quantize_fp8});
constexpr Op<quire_row_offsets_args, RowOffsetsArgs> kRowOffsets(
    "row_offsets",
    {.required = sizeof(quire_row_offsets_args), .read = read_row_offsets, .run = row_offsets});

constexpr NumberedOp kOps[] = {
    {QUIRE_OP_ROPE, &kRope},
    {QUIRE_OP_RMS_NORM_KEY, &kRmsNormKey},
    {QUIRE_OP_RMS_NORM_VALUE, &kRmsNormValue},
    {QUIRE_OP_STORE, &kStore},
    {QUIRE_OP_STORE_SCALES, &kStoreScales},
    {QUIRE_OP_COPY_PAGES, &kCopyPages},
    {QUIRE_OP_QUANTIZE_FP8, &kQuantizeFp8},
    {QUIRE_OP_ROW_OFFSETS, &kRowOffsets},
};

}  // namespace

std::span<const NumberedOp> row_ops() {
  return kOps;
}

}  // namespace quire::c

quire_status quire_rope(const quire_rope_args* args, const quire_context* context) {
  return quire::c::kRope.call(args, context);
}

quire_status quire_rms_norm_key(const quire_rms_norm_args* args, const quire_context* context) {
  return quire::c::kRmsNormKey.call(args, context);
}

quire_status quire_rms_norm_value(const quire_rms_norm_args* args, const quire_context* context) {
  return quire::c::kRmsNormValue.call(args, context);
}

quire_status quire_store(const quire_store_args* args, const quire_context* context) {
  return quire::c::kStore.call(args, context);
}

quire_status quire_store_scales(const quire_store_scales_args* args, const quire_context* context) {
  return quire::c::kStoreScales.call(args, context);
}

quire_status quire_copy_pages(const quire_copy_pages_args* args, const quire_context* context) {
  return quire::c::kCopyPages.call(args, context);
}

quire_status quire_quantize_fp8(const quire_quantize_fp8_args* args, const quire_context* context) {
  return quire::c::kQuantizeFp8.call(args, context);
}

quire_status quire_row_offsets(const quire_row_offsets_args* args, const quire_context* context) {
  return quire::c::kRowOffsets.call(args, context);
}
