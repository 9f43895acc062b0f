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

const BorrowedTensor& ArgumentReader::borrow_tensor(nb::handle object, const Place& place,
                                                    Access access) {
  if (known_ != nullptr) {
    for (const BorrowedTensor& tensor : known_->borrowed_) {
      if (tensor.source().is(object) && tensor.access() == access) return tensor;
    }
  }
  return borrowed_.emplace_back(object, access, place, stream_);
}

TensorView ArgumentReader::borrow(nb::handle object, const Place& place, Access access) {
  return borrow_tensor(object, place, access).view();
}

std::optional<TensorView> ArgumentReader::optional_borrow(nb::handle object, const Place& place,
                                                          Access access) {
  if (object.is_none()) return std::nullopt;
  return borrow(object, place, access);
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
void ArgumentReader::borrow_scales(nb::handle object, const Place& place, Access access,
                                   PagedKVCache& cache) {
  if (object.is_none()) return;
  const BorrowedTensor& scales = borrow_tensor(object, place, Access::read);
  cache.scales = scales.view();
  if (access == Access::read || !scales.read_only()) return;
  if (cache.scales->rank == kMaxRank && !cache.has_static_scales()) {
    cache.scales = borrow(object, place, Access::write);
  }
}

PagedKVCache ArgumentReader::cache(const char* name, Access access) {
  const nb::object cache = find(name);
  if (!nb::hasattr(cache, interned("blocks")) || !nb::hasattr(cache, interned("page_table"))) {
    refuse(ErrorCode::invalid_type, at(name), "a quire.PagedKVCache", cache);
  }
  const auto field = [&](const char* attribute) {
    return nb::getattr(cache, interned(attribute), nb::none());
  };
  // None: an op that needs it will say so.
  const auto table_of = [&](const char* attribute) -> TensorView {
    const nb::object table = field(attribute);
    if (table.is_none()) return {};
    return as_unsigned(borrow(table, at(name, attribute), Access::read));
  };
  const auto bound = [&](const char* attribute) -> std::optional<std::uint32_t> {
    const nb::object value = field(attribute);
    if (value.is_none()) return std::nullopt;
    return cast<std::uint32_t>(value, at(name, attribute));
  };
  PagedKVCache result{
      .blocks = borrow(field("blocks"), at(name, "blocks"), access),
      .cache_lengths = table_of("cache_lengths"),
      .page_table = table_of("page_table"),
      .max_seq_length = bound("max_seq_length"),
      .max_cache_length = bound("max_cache_length"),
  };
  const nb::object values = field("value_blocks");
  if (!values.is_none()) result.value_blocks = borrow(values, at(name, "value_blocks"), access);
  const nb::object is_static = field("static_scales");
  if (!is_static.is_none()) {
    result.static_scales = cast<bool>(is_static, at(name, "static_scales"));
  }
  borrow_scales(field("scales"), at(name, "scales"), access, result);
  if (!field("scales_page_table").is_none()) {
    result.scales_page_table = table_of("scales_page_table");
  }
  const nb::object format = field("row_format");
  if (!format.is_none()) {
    RowFormat given;
    if (!nb::try_cast(format, given)) {
      refuse(ErrorCode::invalid_type, at(name, "row_format"), "a quire.RowFormat", format);
    }
    result.row_format = given;
  }
  return result;
}

Mask ArgumentReader::mask(const char* name) {
  std::int32_t budget = Mask::kMaxNodes;
  return read_mask(find(name), name, budget);
}

Mask ArgumentReader::read_mask(nb::handle object, const char* argument, std::int32_t& budget) {
  constexpr std::string_view kExpected = "a str or a quire.Mask";
  if (--budget < 0) {
    throw Error(ErrorCode::invalid_value, std::string(op_), argument,
                "of at most " + std::to_string(Mask::kMaxNodes / 2 + 1) + " masks joined", "more");
  }
  if (const std::optional<std::string> name = text_of(object)) {
    try {
      return Mask::parse(*name);
    } catch (const Error& error) {
      throw Error(error.code(), std::string(op_), argument, error.expected(), error.actual());
    }
  }
  const auto field = [&](const char* name) {
    return nb::getattr(object, interned(name), nb::none());
  };
  const auto kind = text_of(field("kind"));
  if (!kind.has_value()) refuse(ErrorCode::invalid_type, at(argument), kExpected, object);
  const auto size = [&] { return cast<std::int64_t>(field("size"), at(argument, "size")); };
  if (*kind == "full") return Mask::full();
  if (*kind == "causal") return Mask::causal();
  if (*kind == "sliding_window") return Mask::sliding_window(size());
  if (*kind == "chunked") return Mask::chunked(size());
  if (*kind == "tree") return Mask::tree(borrow(field("bits"), at(argument, "bits"), Access::read));
  if (*kind == "key_intervals") {
    const TensorView begin = borrow(field("begin"), at(argument, "begin"), Access::read);
    return Mask::key_intervals(begin, borrow(field("end"), at(argument, "end"), Access::read));
  }
  if (*kind != "all_of" && *kind != "any_of") {
    refuse(ErrorCode::invalid_type, at(argument), kExpected, object);
  }
  const Mask left = read_mask(field("left"), argument, budget);
  const Mask right = read_mask(field("right"), argument, budget);
  return *kind == "all_of" ? left & right : left | right;
}

Weight ArgumentReader::weight() {
  const nb::object given = find("weight");
  if (nb::isinstance<PackedWeight>(given)) {
    for (const char* name : {"weight_scale", "quant"}) {
      const nb::object part = find(name);
      if (part.is_none()) continue;
      refuse(ErrorCode::invalid_value, at(name), "None for a packed weight, which has it inside",
             part);
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
  const bool has_fields = nb::hasattr(quant, "format") && nb::hasattr(quant, "group_size") &&
                          nb::hasattr(quant, "zeros") && nb::hasattr(quant, "perm");
  if (!has_fields) {  // str has a format
    refuse(ErrorCode::invalid_type, at("quant"), "a quire.Quant", quant);
  }
  const auto name = cast<std::string>(quant.attr("format"), at("quant", "format"));
  const auto format = weight_format_from_name(name);
  if (!format) {
    refuse(ErrorCode::invalid_value, at("quant", "format"),
           "int4, gptq, gptq_v2, awq, q4_0, q4_1, q5_0, q5_1, q8_0, iq4_nl, mxfp4, q4_k, q5_k, "
           "q6_k, fp8 or dense",
           quant.attr("format"));
  }
  weight.format = *format;
  weight.group_size = cast<std::int64_t>(quant.attr("group_size"), at("quant", "group_size"));
  weight.zeros = optional_borrow(quant.attr("zeros"), at("quant", "zeros"), Access::read);
  weight.perm = optional_borrow(quant.attr("perm"), at("quant", "perm"), Access::read);
  if (weight.format == WeightFormat::int4) weight.data = as_packed_codes(weight.data);
  return weight;
}

KvSide ArgumentReader::side() const {
  const nb::object side = find("side");
  const std::optional<std::string> name = text_of(side);
  if (name == "key") return KvSide::key;
  if (name == "value") return KvSide::value;
  refuse(name ? ErrorCode::invalid_value : ErrorCode::invalid_type, at("side"), "'key' or 'value'",
         side);
}

MlaPrefillChunks ArgumentReader::chunks(const char* name, Access access) {
  const nb::object plan = find(name);
  if (!nb::hasattr(plan, interned("buffer_row_offsets"))) {
    refuse(ErrorCode::invalid_type, at(name), "the result of quire.mla_prefill_plan", plan);
  }
  const auto part = [&](const char* attribute) {
    return nb::getattr(plan, interned(attribute), nb::none());
  };
  const auto array = [&](const char* attribute) {
    return borrow(part(attribute), at(name, attribute), access);
  };
  const auto count = [&](const char* attribute) {
    return cast<std::int64_t>(part(attribute), at(name, attribute));
  };
  return {
      .buffer_row_offsets = as_unsigned(array("buffer_row_offsets")),
      .cache_offsets = as_unsigned(array("cache_offsets")),
      .buffer_lengths = array("buffer_lengths"),
      .buffer_tokens = count("buffer_tokens"),
      .decode_tokens = count("decode_tokens"),
  };
}

}  // namespace quire::python
