// SPDX-License-Identifier: Apache-2.0
#include "fuzz/problems/edits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "fuzz/problems/built_views.h"
#include "quire/element.h"

namespace quire::test {
namespace {

using nlohmann::json;
using tools::CacheSpec;
using tools::Lengths;
using tools::Side;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kSmallest = 1e-30;
constexpr double kSubnormal = 1e-40;  // in bf16 and f32

// A cache of the problem as its case describes it and as it stands in memory.
struct ProblemCache {
  CacheSpec spec;
  Lengths lengths;
  PagedKVCache view;
};

std::optional<ProblemCache> find_cache(const json& object, const std::string& name,
                                       const std::vector<NamedView>& views) {
  const bool is_extra = name == "extra";
  if (is_extra && !object.contains("extra")) return std::nullopt;
  const json& holder = is_extra ? object["extra"] : object;
  const TensorView* blocks = find_view(views, name + ".blocks");
  const TensorView* table = find_view(views, name + ".page_table");
  if (!holder.contains("cache") || blocks == nullptr || table == nullptr) return std::nullopt;
  ProblemCache cache;
  cache.lengths = tools::read_lengths_and_keys(tools::Fields(object, "edits"));
  const char* tokens_per_row = is_extra                          ? "tokens_per_row"
                               : object["op"] == "compress_keys" ? "ratio"
                                                                 : "tokens_per_key";
  if (holder.contains(tokens_per_row)) {
    cache.lengths = tools::compressed(cache.lengths, holder[tokens_per_row].get<std::int64_t>());
  }
  const bool is_mla = holder["cache"].contains("latent") && !holder["cache"].contains("mla");
  cache.spec = tools::read_cache(tools::Fields(holder, "edits"), cache.lengths, is_mla);
  cache.view.blocks = *blocks;
  const TensorView* values = find_view(views, name + ".value_blocks");
  if (values != nullptr) cache.view.value_blocks = *values;
  cache.view.page_table = *table;
  cache.view.row_format = cache.spec.row_format;
  return cache;
}

// Codes have no other values than those the case gave them, scales must stay finite, and an output's contents are
// nothing yet.
bool takes_edits(const NamedView& named, const std::set<std::string>& outputs) {
  const std::string& name = named.name;
  return is_float(named.view.dtype) && !outputs.contains(name) && !name.ends_with("scale") &&
         !name.ends_with("scales") && name != "freqs_cis" && !name.ends_with("blocks") &&
         name != "k" && name != "v" &&  // a hidden key's value may reach a row as NaN
         name != "alibi_slopes" && name != "weights";
}

// Products of three such numbers, as in MLA, and sums of them stay inside of fp32: past it the oracle, which sums in
// double, promises more than any kernel keeps.
double limit_of(DType dtype) {
  if (dtype == DType::fp8_e4m3) return 448.0;
  if (dtype == DType::fp8_e5m2) return 57344.0;
  // Not a power of two times 448: as a row's largest magnitude that is a border of power-of-two scales, on which f32
  // stands and from which the oracle's double is a little away.
  return dtype == DType::f16 ? 61440.0 : 1e12;
}

double draw_value(Draw& draw, DType dtype) {
  const double largest = limit_of(dtype);
  return draw.pick(
      {kNan, kNan, kInfinity, -kInfinity, 0.0, -0.0, largest, -largest, kSmallest, kSubnormal});
}

double draw_factor(Draw& draw, DType dtype) {
  const bool is_narrow = dtype == DType::f16 || is_fp8(dtype);
  return std::ldexp(1.0, static_cast<int>(is_narrow ? draw.between(-6, 6) : draw.between(-20, 36)));
}

void draw_row_edit(Draw& draw, const std::string& name, const ProblemCache& cache, Edits& edits) {
  const CacheSpec& spec = cache.spec;
  RowEdit edit{.cache = name};
  edit.place.side = !spec.is_mla && draw.one_in(2) ? Side::value : Side::key;
  const RowPart& part = spec.row_format.parts[0];
  const bool is_plain = part.scale_source == ScaleSource::none && !is_fp8(part.dtype);
  if (is_plain && draw.one_in(3)) {
    edit.value = draw_factor(draw, part.dtype);
    edits.rows.push_back(edit);
    return;
  }
  if (!is_float(part.dtype) || cache.lengths.batch() == 0) return;
  edit.place.sequence = draw.below(cache.lengths.batch());
  const std::int64_t keys = cache.lengths.keys(edit.place.sequence);
  if (keys == 0) return;
  edit.place.token = draw.below(keys);
  edit.place.head = draw.below(spec.kv_heads);
  edit.column = static_cast<std::int32_t>(draw.below(spec.width()));
  edit.value = draw_value(draw, part.dtype);
  edits.rows.push_back(edit);
}

void change_row(const ProblemCache& cache, const tools::RowPlace& place, std::int32_t first,
                std::int32_t last, double value, bool multiplies) {
  std::byte* row = tools::row_address(cache.view, place);
  if (row == nullptr) return;
  for (std::int32_t column = first; column < last; ++column) {
    std::int32_t index = column;
    std::size_t p = 0;
    while (index >= cache.spec.row_format.parts[p].width) {
      index -= cache.spec.row_format.parts[p++].width;
    }
    const RowPart& part = cache.spec.row_format.parts[p];
    std::byte* start = row + part.offset_bytes;
    const double old = multiplies ? load_element(start, part.dtype, index) : 1.0;
    store_element(start, part.dtype, index, old * value);
  }
}

void apply_to_rows(const RowEdit& edit, const ProblemCache& cache) {
  tools::RowPlace place = edit.place;
  // Twins have one layer: theirs is the case's.
  place.layer = cache.view.blocks.shape[2] == cache.spec.layers ? cache.spec.layer : 0;
  const auto width = static_cast<std::int32_t>(cache.spec.width());
  if (edit.column >= 0) {
    change_row(cache, place, edit.column, edit.column + 1, edit.value, false);
    return;
  }
  for (std::int64_t b = 0; b < cache.lengths.batch(); ++b) {
    for (std::int64_t token = 0; token < cache.lengths.keys(b); ++token) {
      for (std::int64_t head = 0; head < cache.spec.kv_heads; ++head) {
        place.sequence = b;
        place.token = token;
        place.head = head;
        change_row(cache, place, 0, width, edit.value, true);
      }
    }
  }
}

// body(element offset) of every element of a view in row-major order.
template <typename Body> void for_elements(const TensorView& view, Body&& body) {
  std::array<std::int64_t, kMaxRank> index{};
  for (std::int64_t i = 0; i < view.numel(); ++i) {
    std::int64_t offset = 0;
    for (int dim = 0; dim < view.rank; ++dim) offset += index[dim] * view.strides[dim];
    body(i, offset);
    for (int dim = view.rank - 1; dim >= 0 && ++index[dim] == view.shape[dim]; --dim) {
      index[dim] = 0;
    }
  }
}

void apply_to_tensor(const TensorEdit& edit, const TensorView& view) {
  for_elements(view, [&](std::int64_t i, std::int64_t offset) {
    if (edit.element >= 0 && edit.element != i) return;
    const double old = edit.element < 0 ? load_element(view.data, view.dtype, offset) : 1.0;
    store_element(view.data, view.dtype, offset, old * edit.value);
  });
}

// The numbers of bf16 that the edits set: products of bf16 take a subnormal one as 0, and 0 times an infinity is a NaN
// that the oracle does not have (docs/numerics.md, NaN and infinity).
void keep_subnormals_from_infinities(const json& object, const std::vector<NamedView>& views,
                                     Edits& edits) {
  const auto is_infinite = [](const auto& edit) { return std::isinf(edit.value); };
  if (std::ranges::none_of(edits.tensors, is_infinite) &&
      std::ranges::none_of(edits.rows, is_infinite)) {
    return;
  }
  for (TensorEdit& edit : edits.tensors) {
    const bool is_bf16 = find_view(views, edit.tensor)->dtype == DType::bf16;
    if (is_bf16 && edit.value == kSubnormal) edit.value = kSmallest;
  }
  for (RowEdit& edit : edits.rows) {
    const std::optional<ProblemCache> cache = find_cache(object, edit.cache, views);
    const RowFormat& format = cache->spec.row_format;
    const bool is_bf16 =
        std::ranges::any_of(format.parts.begin(), format.parts.begin() + format.num_parts,
                            [](const RowPart& part) { return part.dtype == DType::bf16; });
    if (is_bf16 && edit.value == kSubnormal) edit.value = kSmallest;
  }
}

// Rounding to e4m3 for products makes an infinity the largest number, which the oracle does not do, and kernels with such
// products do not promise scores beyond 2^20 powers of two (docs/numerics.md, NaN and infinity): three edits together
// stay below. NaN stays NaN, and has to arrive.
void keep_to_what_fp8_products_promise(const json& object, Edits& edits) {
  if (!object.value("allow_fp8_products", false)) return;
  static constexpr double kLarge = 64.0;
  const auto limit = [](auto& edit) {
    edit.value = std::isinf(edit.value) ? kNan : std::clamp(edit.value, -kLarge, kLarge);
  };
  std::ranges::for_each(edits.tensors, limit);
  std::ranges::for_each(edits.rows, limit);
}

// Products of codes and the sum of x over a block, which the min multiplies, meet as ∞ − ∞ where the oracle has an
// infinity (docs/numerics.md, NaN and infinity); NaN stays NaN.
void keep_infinities_from_mins(const json& object, Edits& edits) {
  const std::string format = object.value("weight", json::object()).value("format", "dense");
  if (format != "q4_1" && format != "q5_1") return;
  for (TensorEdit& edit : edits.tensors) {
    if (edit.tensor == "x" && std::isinf(edit.value)) edit.value = kNan;
  }
}

// Large numbers spread the scores: an infinite row whose weight underflows in fp32 makes 0 · ∞, or is left out with what
// weighs nothing (docs/numerics.md, NaN and infinity). So do rows of MLA that are made from infinities, and large gates of
// compress_keys with its kv, which the state holds, too. NaN has to arrive.
void keep_infinite_rows_from_underflow(const json& object, Edits& edits) {
  constexpr double kLarge = 16.0;
  const auto is_large = [](const auto& edit) {
    return std::isfinite(edit.value) && std::abs(edit.value) > kLarge;
  };
  if (!object.contains("gate_amplitude") && std::ranges::none_of(edits.tensors, is_large) &&
      std::ranges::none_of(edits.rows, is_large)) {
    return;
  }
  const auto to_nan = [](auto& edit) {
    if (std::isinf(edit.value)) edit.value = kNan;
  };
  std::ranges::for_each(edits.rows, to_nan);
  for (TensorEdit& edit : edits.tensors) {
    if (edit.tensor == "kv" || edit.tensor == "state" || edit.tensor == "kv_norm_gamma")
      to_nan(edit);
  }
}

}  // namespace

Edits draw_edits(Draw& draw, const json& object, const tools::Built& built) {
  Edits edits;
  const std::vector<NamedView> views = views_of(built);
  std::set<std::string> outputs;
  for (const tools::Output& output : built.outputs) outputs.insert(output.name);
  std::vector<const NamedView*> inputs;
  for (const NamedView& named : views) {
    if (takes_edits(named, outputs)) inputs.push_back(&named);
  }
  const std::int64_t count = draw.between(1, 3);
  for (std::int64_t i = 0; i < count; ++i) {
    // What copy_pages has to leave was noted when the problem was built.
    if (object["op"] != "copy_pages" && draw.one_in(2)) {
      for (const char* name : {"cache", "extra"}) {
        const std::optional<ProblemCache> cache = find_cache(object, name, views);
        if (cache.has_value()) draw_row_edit(draw, name, *cache, edits);
      }
    } else if (!inputs.empty()) {
      const NamedView& named =
          *inputs[static_cast<std::size_t>(draw.below(static_cast<std::int64_t>(inputs.size())))];
      TensorEdit edit{.tensor = named.name};
      if (!draw.one_in(3)) edit.element = draw.below(named.view.numel());
      edit.value = edit.element < 0 ? draw_factor(draw, named.view.dtype)
                                    : draw_value(draw, named.view.dtype);
      edits.tensors.push_back(edit);
    }
  }
  keep_to_what_fp8_products_promise(object, edits);
  keep_infinities_from_mins(object, edits);
  keep_infinite_rows_from_underflow(object, edits);
  keep_subnormals_from_infinities(object, views, edits);
  return edits;
}

void apply(const Edits& edits, const json& object, const tools::Built& built) {
  if (edits.empty()) return;
  const std::vector<NamedView> views = views_of(built);
  for (const TensorEdit& edit : edits.tensors) {
    const TensorView* view = find_view(views, edit.tensor);
    if (view != nullptr) apply_to_tensor(edit, *view);
  }
  for (const RowEdit& edit : edits.rows) {
    const std::optional<ProblemCache> cache = find_cache(object, edit.cache, views);
    if (cache.has_value()) apply_to_rows(edit, *cache);
  }
}

std::string describe(const Edits& edits) {
  std::string text;
  for (const TensorEdit& edit : edits.tensors) {
    text += edit.element < 0
                ? fmt::format("; {} times {:g}", edit.tensor, edit.value)
                : fmt::format("; {}[{}] = {:g}", edit.tensor, edit.element, edit.value);
  }
  for (const RowEdit& edit : edits.rows) {
    const char* side = edit.place.side == Side::key ? "key" : "value";
    text += edit.column < 0
                ? fmt::format("; {} {}s times {:g}", edit.cache, side, edit.value)
                : fmt::format("; {} {} of sequence {}, token {}, head {}, column {} = {:g}",
                              edit.cache, side, edit.place.sequence, edit.place.token,
                              edit.place.head, edit.column, edit.value);
  }
  return text;
}

}  // namespace quire::test
