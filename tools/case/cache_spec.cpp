// SPDX-License-Identifier: Apache-2.0
#include "tools/case/cache_spec.h"

#include <algorithm>

namespace quire::tools {
namespace {

RowFormat read_int4_format(const Fields& fields, std::int32_t width) {
  const std::int64_t group = fields.integer("granularity", 1, 32);
  if (group != 32 && group != 64) fields.fail("granularity", "32 or 64 for rows of int4");
  if (width % 2 != 0) fields.fail("row_format", "of an even width for int4");
  const DType scale_dtype =
      fields.dtype("scale_dtype", {DType::f32, DType::f16, DType::bf16}, DType::f16);
  return RowFormat::int4(width, static_cast<std::int32_t>(group), scale_dtype,
                         fields.flag("zeros", false));
}

RowFormat read_row_format(const Fields& fields, CacheSpec& spec) {
  const std::string kind = fields.choice(
      "row_format", {"uniform", "scaled", "int4", "mla_fp8_token", "mla_fp8_block", "mla_fp8_e8m0"},
      "uniform");
  const bool mixed = kind.starts_with("mla_");
  spec.latent = spec.is_mla ? fields.integer("latent", 1) : 0;
  const auto latent = static_cast<std::int32_t>(spec.latent);
  const auto rope =
      spec.is_mla ? static_cast<std::int32_t>(fields.integer("rope", 0)) : std::int32_t{0};
  if (mixed && !spec.is_mla) fields.fail("row_format", "uniform, scaled or int4 without MLA");
  if (mixed) {
    const DType rope_dtype =
        fields.dtype("rope_dtype", {DType::bf16, DType::f16, DType::f32}, DType::bf16);
    if (kind == "mla_fp8_token") return RowFormat::mla_fp8_token(latent, rope, rope_dtype);
    const bool has_powers = kind == "mla_fp8_e8m0";
    const auto block =
        static_cast<std::int32_t>(fields.integer("granularity", 1, has_powers ? 64 : 128));
    return has_powers ? RowFormat::mla_fp8_e8m0(latent, rope, block, rope_dtype)
                      : RowFormat::mla_fp8_block(latent, rope, block, rope_dtype);
  }
  const auto width =
      spec.is_mla ? latent + rope : static_cast<std::int32_t>(fields.integer("head_dim", 1));
  if (kind == "int4") return read_int4_format(fields, width);
  const DType dtype = fields.dtype(
      "dtype",
      {DType::f32, DType::f16, DType::bf16, DType::fp8_e4m3, DType::fp8_e5m2, DType::i8, DType::i4},
      DType::bf16);
  if (kind == "uniform") return RowFormat::uniform(dtype, width);
  const auto granularity = static_cast<std::int32_t>(fields.integer("granularity", 1, width));
  const DType scale_dtype =
      fields.dtype("scale_dtype", {DType::f32, DType::f16, DType::bf16, DType::e8m0}, DType::f32);
  if (scale_dtype == DType::e8m0 && !is_fp8(dtype))
    fields.fail("scale_dtype", "e8m0 for fp8 rows alone");
  return RowFormat::scaled(dtype, width, granularity, scale_dtype);
}

DType dtype_of(const CacheSpec& spec) {
  return spec.row_format.parts[0].dtype;
}

void check_unassigned(const Fields& fields, const CacheSpec& spec, const Lengths& lengths) {
  for (const auto& [sequence, column] : spec.unassigned) {
    const bool right =
        sequence < lengths.batch() && column * spec.page_size < lengths.keys(sequence);
    if (!right) fields.fail("unassigned", "pairs of a sequence and one of its page columns");
  }
}

void check_spoiled(const Fields& fields, const CacheSpec& spec, const Lengths& lengths,
                   const std::string& key,
                   const std::vector<std::pair<std::int64_t, std::int64_t>>& places) {
  for (const auto& [sequence, token] : places) {
    const bool right =
        sequence >= 0 && sequence < lengths.batch() && token >= 0 && token < lengths.keys(sequence);
    if (!right) fields.fail(key, "pairs of a sequence and one of its keys");
    if (!is_float(dtype_of(spec))) fields.fail(key, "absent for rows of integers");
  }
}

}  // namespace

std::int64_t CacheSpec::token_bytes() const {
  std::int64_t row = row_bytes();
  if (row_format.uses_plane() && scale_kind != ScaleKind::fixed) {
    row += bytes_for(row_format.parts[0].scale_dtype, row_format.plane_slots());
  }
  return row * kv_heads * (is_mla ? 1 : 2);
}

double CacheSpec::total_bytes(const Lengths& lengths) const {
  return static_cast<double>(lengths.total_keys()) * static_cast<double>(token_bytes()) *
         static_cast<double>(layers);
}

bool CacheSpec::is_assigned(std::int64_t sequence, std::int64_t token) const {
  const std::pair entry(sequence, token / page_size);
  return !std::binary_search(unassigned.begin(), unassigned.end(), entry);
}

CacheSpec CacheSpec::contiguous_twin(const Lengths& lengths, bool keep_page_size) const {
  CacheSpec twin = *this;
  if (unassigned.empty() && !keep_page_size) {
    twin.page_size = std::max<std::int64_t>(1, lengths.max_keys());
  }
  twin.layers = 1;
  twin.layer = 0;
  twin.page_order = PageOrder::identity;
  twin.heads_first = false;
  twin.is_split = false;
  if (scale_kind != ScaleKind::fixed) twin.scale_kind = ScaleKind::dynamic;
  twin.spare_pages = 0;
  twin.spare_columns = 0;
  twin.poison = false;
  return twin;
}

CacheSpec read_cache(const Fields& fields, const Lengths& lengths, bool is_mla,
                     const std::string& key) {
  const Fields cache = fields.object(key);
  CacheSpec spec;
  spec.is_mla = is_mla || cache.flag("mla", false);
  spec.kv_heads = spec.is_mla ? 1 : cache.integer("kv_heads", 1);
  spec.row_format = read_row_format(cache, spec);
  spec.page_size = cache.integer("page_size", 1);
  spec.layers = cache.integer("layers", 1, 2);
  spec.layer = cache.integer("layer", 0, spec.layers - 1);
  if (spec.layer >= spec.layers) cache.fail("layer", "below 'layers'");
  const std::string order =
      cache.choice("page_order", {"identity", "reversed", "shuffled"}, "shuffled");
  spec.page_order = order == "identity"   ? PageOrder::identity
                    : order == "reversed" ? PageOrder::reversed
                                          : PageOrder::shuffled;
  spec.is_split = cache.flag("split", false);
  if (spec.is_split && spec.is_mla) cache.fail("split", "absent for MLA, which has no values");
  spec.heads_first = cache.choice("order", {"nhd", "hnd"}, "nhd") == "hnd";
  const std::string scales =
      cache.choice("scales", {"dynamic", "static", "own_table", "page_end"}, "dynamic");
  spec.scale_kind = scales == "static"      ? ScaleKind::fixed
                    : scales == "own_table" ? ScaleKind::own_table
                    : scales == "page_end"  ? ScaleKind::page_end
                                            : ScaleKind::dynamic;
  const bool has_bytes = spec.row_format.parts[0].scale_dtype == DType::e8m0;
  if (scales == "page_end" && (!has_bytes || spec.is_split || spec.heads_first)) {
    cache.fail("scales", "'page_end' for e8m0 scales of one tensor, tokens before heads");
  }
  if (scales != "dynamic" && !spec.row_format.uses_plane()) {
    cache.fail("scales", "absent for rows without a scale plane");
  }
  spec.spare_pages = cache.integer("spare_pages", 0, spec.spare_pages);
  spec.spare_columns = cache.integer("spare_columns", 0, spec.spare_columns);
  spec.unassigned = cache.pairs("unassigned");
  std::sort(spec.unassigned.begin(), spec.unassigned.end());
  spec.poison = cache.flag("poison", true);
  spec.poison_number = cache.choice("poison_number", {"nan", "infinity"}, "nan") == "nan"
                           ? PoisonNumber::nan
                           : PoisonNumber::infinity;
  const bool has_infinity = spec.row_format.is_uniform() && bits(dtype_of(spec)) > 8;
  if (spec.poison_number == PoisonNumber::infinity && !has_infinity) {
    cache.fail("poison_number", "'nan' but for uniform rows of f32, f16 or bf16");
  }
  spec.nan_values = cache.pairs("nan_values");
  spec.infinite_values = cache.pairs("infinite_values");
  cache.finish();
  check_unassigned(cache, spec, lengths);
  check_spoiled(cache, spec, lengths, "nan_values", spec.nan_values);
  check_spoiled(cache, spec, lengths, "infinite_values", spec.infinite_values);
  return spec;
}

}  // namespace quire::tools
