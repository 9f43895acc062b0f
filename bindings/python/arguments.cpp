// SPDX-License-Identifier: Apache-2.0
#include "arguments.h"

#include "packed_weight.h"

#include <utility>

namespace nb = nanobind;

namespace quire::python {
namespace {

// Two 4-bit codes per byte, seen as what they are: u8 [N, K/2] → u4 [N, K].
TensorView as_packed_codes(TensorView bytes) {
  if (bytes.dtype != DType::u8 || bytes.rank == 0) return bytes;
  bytes.dtype = DType::u4;
  bytes.shape[bytes.rank - 1] *= 2;
  for (int d = 0; d + 1 < bytes.rank; ++d) bytes.strides[d] *= 2;
  return bytes;
}

}  // namespace

// Scalars are shown as they are, anything larger by its class.
void ArgumentReader::refuse(ErrorCode code, const std::string& argument, std::string_view expected,
                            nb::handle actual) const {
  const bool brief = actual.is_none() || nb::isinstance<nb::str>(actual) ||
                     nb::isinstance<nb::int_>(actual) || nb::isinstance<nb::float_>(actual);
  const nb::object shown = brief ? nb::repr(actual) : nb::object(actual.type().attr("__name__"));
  throw Error(code, op_, argument, std::string(expected), nb::cast<std::string>(shown));
}

TensorView ArgumentReader::borrow(nb::handle object, const std::string& argument, Access access) {
  return borrowed_.emplace_back(object, access, Place{op_, argument}, stream_).view();
}

std::optional<TensorView> ArgumentReader::optional_borrow(nb::handle object,
                                                          const std::string& argument,
                                                          Access access) {
  if (object.is_none()) return std::nullopt;
  return borrow(object, argument, access);
}

TensorView ArgumentReader::as_unsigned(TensorView view) {
  if (view.dtype == DType::i32) view.dtype = DType::u32;
  return view;
}

std::optional<TensorView> ArgumentReader::optional_indices(const char* name) {
  std::optional<TensorView> view = optional_tensor(name);
  if (view) view = as_unsigned(*view);
  return view;
}

// Static scales are broadcast views, which numpy makes read-only: ops never write those.
std::optional<TensorView> ArgumentReader::borrow_scales(nb::handle object,
                                                        const std::string& argument,
                                                        Access access) {
  const std::optional<TensorView> view = optional_borrow(object, argument, Access::read);
  if (!view || access == Access::read || !borrowed_.back().read_only()) return view;
  const bool is_static = view->rank < 4 || view->strides[0] == 0 || view->strides[3] == 0;
  return is_static ? view : borrow(object, argument, Access::write);
}

PagedKVCache ArgumentReader::cache(const char* name, Access access) {
  const nb::object cache = find(name);
  if (!nb::hasattr(cache, "blocks") || !nb::hasattr(cache, "page_table")) {
    refuse(ErrorCode::invalid_type, name, "a quire.PagedKVCache", cache);
  }
  const std::string prefix = std::string(name) + ".";
  const auto field = [&](const char* attribute) { return nb::getattr(cache, attribute); };
  const auto bound = [&](const char* attribute) -> std::optional<std::uint32_t> {
    const nb::object value = field(attribute);
    if (value.is_none()) return std::nullopt;
    return cast<std::uint32_t>(value, prefix + attribute, "a number");
  };
  PagedKVCache result{
      .blocks = borrow(field("blocks"), prefix + "blocks", access),
      .cache_lengths =
          as_unsigned(borrow(field("cache_lengths"), prefix + "cache_lengths", Access::read)),
      .page_table = as_unsigned(borrow(field("page_table"), prefix + "page_table", Access::read)),
      .max_seq_length = bound("max_seq_length"),
      .max_cache_length = bound("max_cache_length"),
  };
  result.scales = borrow_scales(field("scales"), prefix + "scales", access);
  const nb::object table = field("scales_page_table");
  if (!table.is_none()) {
    result.scales_page_table =
        as_unsigned(borrow(table, prefix + "scales_page_table", Access::read));
  }
  const nb::object format = field("row_format");
  if (!format.is_none()) {
    result.row_format = cast<RowFormat>(format, prefix + "row_format", "a quire.RowFormat");
  }
  return result;
}

Mask ArgumentReader::mask(const char* name) {
  return read_mask(find(name), name);
}

Mask ArgumentReader::read_mask(nb::handle object, const std::string& argument) {
  if (nb::isinstance<nb::str>(object)) {
    try {
      return Mask::parse(nb::cast<std::string>(object));
    } catch (const Error& error) {
      throw Error(error.code(), op_, argument, error.expected(), error.actual());
    }
  }
  if (!nb::hasattr(object, "kind")) {
    refuse(ErrorCode::invalid_type, argument, "a str or a quire.Mask", object);
  }
  const auto kind = nb::cast<std::string>(object.attr("kind"));
  const auto size = [&] {
    return cast<std::int64_t>(object.attr("size"), argument + ".size", "a whole number");
  };
  if (kind == "full") return Mask::full();
  if (kind == "causal") return Mask::causal();
  if (kind == "sliding_window") return Mask::sliding_window(size());
  if (kind == "chunked") return Mask::chunked(size());
  if (kind == "tree") {
    return Mask::tree(borrow(object.attr("bits"), argument + ".bits", Access::read));
  }
  const Mask left = read_mask(object.attr("left"), argument);
  const Mask right = read_mask(object.attr("right"), argument);
  return kind == "all_of" ? left & right : left | right;
}

Weight ArgumentReader::weight() {
  const nb::object given = find("weight");
  if (nb::isinstance<PackedWeight>(given)) {
    for (const char* name : {"weight_scale", "quant"}) {
      const nb::object part = find(name);
      if (part.is_none()) continue;
      refuse(ErrorCode::invalid_value, name, "None for a packed weight, which has it inside", part);
    }
    return nb::cast<const PackedWeight&>(given).view();
  }
  Weight weight;
  weight.data = tensor("weight");
  weight.scale = optional_tensor("weight_scale");
  const nb::object quant = find("quant");
  if (quant.is_none()) {
    weight.format = is_fp8(weight.data.dtype) ? WeightFormat::fp8 : WeightFormat::dense;
    return weight;
  }
  if (!nb::hasattr(quant, "format") || !nb::hasattr(quant, "group_size")) {  // str has a format
    refuse(ErrorCode::invalid_type, "quant", "a quire.Quant", quant);
  }
  const auto format = weight_format_from_name(nb::cast<std::string>(nb::str(quant.attr("format"))));
  if (!format) {
    refuse(ErrorCode::invalid_value, "quant.format",
           "int4, gptq, gptq_v2, awq, q4_0, q8_0, q4_k, q6_k, fp8 or dense", quant.attr("format"));
  }
  weight.format = *format;
  weight.group_size =
      cast<std::int64_t>(quant.attr("group_size"), "quant.group_size", "a whole number");
  weight.zeros = optional_borrow(quant.attr("zeros"), "quant.zeros", Access::read);
  weight.perm = optional_borrow(quant.attr("perm"), "quant.perm", Access::read);
  if (weight.format == WeightFormat::int4) weight.data = as_packed_codes(weight.data);
  return weight;
}

KvSide ArgumentReader::side() const {
  const nb::object side = find("side");
  if (nb::isinstance<nb::str>(side)) {
    const auto text = nb::cast<std::string>(side);
    if (text == "key") return KvSide::key;
    if (text == "value") return KvSide::value;
  }
  refuse(ErrorCode::invalid_value, "side", "'key' or 'value'", side);
}

MlaPrefillChunks ArgumentReader::chunks(const char* name, Access access) {
  const nb::object plan = find(name);
  if (!nb::hasattr(plan, "buffer_row_offsets")) {
    refuse(ErrorCode::invalid_type, name, "the result of quire.mla_prefill_plan", plan);
  }
  const std::string prefix = std::string(name) + ".";
  const auto part = [&](const char* attribute) {
    return borrow(plan.attr(attribute), prefix + attribute, access);
  };
  return {
      .buffer_row_offsets = as_unsigned(part("buffer_row_offsets")),
      .cache_offsets = as_unsigned(part("cache_offsets")),
      .buffer_lengths = part("buffer_lengths"),
      .buffer_tokens = cast<std::int64_t>(plan.attr("buffer_tokens"), prefix + "buffer_tokens",
                                          "a whole number"),
      .decode_tokens = cast<std::int64_t>(plan.attr("decode_tokens"), prefix + "decode_tokens",
                                          "a whole number"),
  };
}

}  // namespace quire::python
