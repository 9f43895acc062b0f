// SPDX-License-Identifier: Apache-2.0
#include "reader.h"

#include <algorithm>

#include "packed_weight.h"

namespace quire::c {
namespace {

// No struct of any version is larger: what lies behind a size that nobody set is not looked at.
constexpr std::size_t kMostBytes = 4096;

// Two 4-bit codes per byte, seen as what they are: u8 [N, K/2] → u4 [N, K].
TensorView as_packed_codes(TensorView bytes) {
  if (bytes.dtype != DType::u8 || bytes.rank == 0) return bytes;
  bytes.dtype = DType::u4;
  bytes.shape[bytes.rank - 1] *= 2;
  for (int d = 0; d + 1 < bytes.rank; ++d) bytes.strides[d] *= 2;
  return bytes;
}

std::optional<std::uint32_t> bound(std::uint32_t value) {
  if (value == 0) return std::nullopt;
  return value;
}

}  // namespace

void Reader::fail(std::string_view argument, std::string expected, std::string actual) const {
  throw Error(ErrorCode::invalid_value, std::string(op_), std::string(argument),
              std::move(expected), std::move(actual));
}

std::size_t Reader::checked_size(std::string_view argument, const void* given,
                                 StructBytes bytes) const {
  if (given == nullptr) fail(argument, "a struct", "NULL");
  std::size_t size = 0;
  std::memcpy(&size, given, sizeof(size));
  const auto refuse = [&](std::string expected, std::string actual) {
    fail(std::string(argument) + ".struct_size", std::move(expected), std::move(actual));
  };
  if (size < bytes.required) {
    refuse("at least " + std::to_string(bytes.required), std::to_string(size));
  }
  if (size % sizeof(std::size_t) != 0 || size > kMostBytes) {
    refuse("a multiple of 8 up to " + std::to_string(kMostBytes), std::to_string(size));
  }
  const auto* tail = static_cast<const unsigned char*>(given) + std::min(size, bytes.known);
  const auto* end = static_cast<const unsigned char*>(given) + size;
  const auto* set = std::find_if(tail, end, [](unsigned char byte) { return byte != 0; });
  if (set != end) {
    refuse(std::to_string(bytes.known) + ", which is all that this library knows, or zeros behind",
           std::to_string(size) + " with something at byte " +
               std::to_string(set - static_cast<const unsigned char*>(given)));
  }
  return std::min(size, bytes.known);
}

bool Reader::flag(std::string_view argument, std::int32_t value) const {
  if (value != 0 && value != 1) fail(argument, "0 or 1", std::to_string(value));
  return value == 1;
}

void Reader::is_zero(std::string_view argument, std::int64_t value) const {
  if (value != 0) fail(argument, "0", std::to_string(value));
}

RowFormat Reader::row_format(std::string_view name_of_cache, const quire_row_format* given) const {
  const std::string argument = std::string(name_of_cache) + ".row_format";
  const auto from = structure<quire_row_format>(argument, given, sizeof(quire_row_format));
  if (from.num_parts < 1 || from.num_parts > RowFormat::kMaxParts) {
    fail(argument + ".num_parts", "1 to " + std::to_string(RowFormat::kMaxParts),
         std::to_string(from.num_parts));
  }
  RowFormat format{.num_parts = from.num_parts, .row_bytes = from.row_bytes};
  const auto* at = reinterpret_cast<const std::byte*>(from.parts);
  for (std::int32_t p = 0; p < from.num_parts; ++p) {
    const std::string name = argument + ".parts[" + std::to_string(p) + "]";
    const auto part = structure<quire_row_part>(name, at, offsetof(quire_row_part, scale_source));
    is_zero(name + ".reserved", part.reserved);
    if (part.scale_source < QUIRE_SCALE_SOURCE_NONE ||
        part.scale_source > QUIRE_SCALE_SOURCE_PLANE) {
      fail(name + ".scale_source", "one of QUIRE_SCALE_SOURCE_*",
           std::to_string(part.scale_source));
    }
    constexpr ScaleSource kSources[] = {ScaleSource::none, ScaleSource::in_row, ScaleSource::plane};
    format.parts[static_cast<std::size_t>(p)] = {
        .dtype = dtype(name + ".dtype", part.dtype),
        .width = part.width,
        .offset_bytes = part.offset_bytes,
        .scale_source = kSources[part.scale_source],
        .granularity = part.granularity,
        .scale_offset_bytes = part.scale_offset_bytes,
        .scale_dtype = part.scale_dtype == QUIRE_DTYPE_DEFAULT
                           ? DType::f32
                           : dtype(name + ".scale_dtype", part.scale_dtype),
    };
    at += part.struct_size;
  }
  std::string reason = why_not(format);
  if (!reason.empty()) {
    fail(argument + ".parts",
         "apart from each other inside a row of " + std::to_string(format.row_bytes) + " bytes",
         std::move(reason));
  }
  return format;
}

TensorView Reader::blocks_as(std::string_view name_of_cache, TensorView blocks,
                             std::int32_t number) const {
  if (number == QUIRE_DTYPE_DEFAULT) return blocks;
  const std::string argument = std::string(name_of_cache) + ".blocks_dtype";
  const DType wanted = dtype(argument, number);
  if (blocks.dtype != DType::u8 || bits(wanted) != 8) {
    fail(argument, "0, or a dtype of 8 bits for blocks of u8",
         std::string(name(wanted)) + " for " + blocks.describe());
  }
  blocks.dtype = wanted;
  return blocks;
}

PagedKVCache Reader::cache(std::string_view argument, const quire_cache* given) const {
  const auto from = structure<quire_cache>(argument, given, offsetof(quire_cache, scales));
  const TensorView blocks = tensor(argument, from.blocks, "blocks");
  // NULL: an op that needs it will say so.
  const auto table = [&](const DLTensor* given_table, std::string_view field) {
    return optional_indices(argument, given_table, field).value_or(TensorView{});
  };
  PagedKVCache cache{
      .blocks = blocks_as(argument, blocks, from.blocks_dtype),
      .cache_lengths = table(from.cache_lengths, "cache_lengths"),
      .page_table = table(from.page_table, "page_table"),
      .scales = optional_tensor(argument, from.scales, "scales"),
      .scales_page_table = optional_indices(argument, from.scales_page_table, "scales_page_table"),
      .max_seq_length = bound(from.max_seq_length),
      .max_cache_length = bound(from.max_cache_length),
  };
  if (from.value_blocks != nullptr) {
    const TensorView values = tensor(argument, from.value_blocks, "value_blocks");
    cache.value_blocks = blocks_as(argument, values, from.blocks_dtype);
  }
  if (from.static_scales < QUIRE_SCALES_BY_STRIDES || from.static_scales > QUIRE_SCALES_DYNAMIC) {
    fail(std::string(argument) + ".static_scales", "one of QUIRE_SCALES_*",
         std::to_string(from.static_scales));
  }
  if (from.static_scales != QUIRE_SCALES_BY_STRIDES) {
    cache.static_scales = from.static_scales == QUIRE_SCALES_STATIC;
  }
  if (from.row_format != nullptr) cache.row_format = row_format(argument, from.row_format);
  return cache;
}

Mask Reader::mask(const quire_mask* given) const {
  if (given == nullptr) return Mask::causal();
  std::int32_t budget = Mask::kMaxNodes;
  return read_mask("mask", given, budget);
}

Mask Reader::read_mask(const std::string& argument, const quire_mask* given,
                       std::int32_t& budget) const {
  if (--budget < 0) {  // a circle, say
    fail("mask", "of at most " + std::to_string(Mask::kMaxNodes / 2 + 1) + " masks joined", "more");
  }
  const auto from = structure<quire_mask>(argument, given, offsetof(quire_mask, size));
  is_zero(argument + ".reserved", from.reserved);
  switch (from.kind) {
    case QUIRE_MASK_CAUSAL:
      return Mask::causal();
    case QUIRE_MASK_FULL:
      return Mask::full();
    case QUIRE_MASK_SLIDING_WINDOW:
      return Mask::sliding_window(from.size);
    case QUIRE_MASK_CHUNKED:
      return Mask::chunked(from.size);
    case QUIRE_MASK_TREE:
      return Mask::tree(tensor(argument, from.bits, "bits"));
    case QUIRE_MASK_KEY_INTERVALS: {
      // Arguments of a call are evaluated in any order; which of two bad fields is named is not left to the compiler.
      const TensorView begin = tensor(argument, from.begin, "begin");
      return Mask::key_intervals(begin, tensor(argument, from.end, "end"));
    }
    case QUIRE_MASK_ALL_OF:
    case QUIRE_MASK_ANY_OF: {
      const Mask left = read_mask(argument + ".left", from.left, budget);
      const Mask right = read_mask(argument + ".right", from.right, budget);
      return from.kind == QUIRE_MASK_ALL_OF ? left & right : left | right;
    }
    default:
      fail(argument + ".kind", "one of QUIRE_MASK_*", std::to_string(from.kind));
  }
}

Weight Reader::weight(const quire_weight* given) const {
  const auto from = structure<quire_weight>("weight", given, offsetof(quire_weight, scale));
  is_zero("weight.reserved", from.reserved);
  if (from.packed != nullptr) {
    if (from.data != nullptr || from.scale != nullptr || from.zeros != nullptr ||
        from.perm != nullptr || from.group_size != 0 || from.format != 0) {
      fail("weight", "nothing beside 'packed', which has it inside", "more fields");
    }
    return from.packed->view;
  }
  Weight weight{
      .data = tensor("weight", from.data, "data"),
      .scale = optional_tensor("weight", from.scale, "scale"),
      .zeros = optional_tensor("weight", from.zeros, "zeros"),
      .perm = optional_tensor("weight", from.perm, "perm"),
      .group_size = from.group_size,
  };
  if (from.format == QUIRE_WEIGHT_BY_DTYPE) {
    weight.format = is_fp8(weight.data.dtype) ? WeightFormat::fp8 : WeightFormat::dense;
  } else {
    weight.format = weight_format("weight.format", from.format);
  }
  if (weight.format == WeightFormat::int4) weight.data = as_packed_codes(weight.data);
  return weight;
}

MlaPrefillChunks Reader::chunks(const quire_mla_prefill_chunks* given) const {
  const auto from = structure<quire_mla_prefill_chunks>(
      "chunks", given, offsetof(quire_mla_prefill_chunks, buffer_tokens));
  return {
      .buffer_row_offsets = indices("chunks", from.buffer_row_offsets, "buffer_row_offsets"),
      .cache_offsets = indices("chunks", from.cache_offsets, "cache_offsets"),
      .buffer_lengths = tensor("chunks", from.buffer_lengths, "buffer_lengths"),
      .buffer_tokens = given_or(from.buffer_tokens, MlaPrefillChunks{}.buffer_tokens),
      .decode_tokens = from.decode_tokens,
  };
}

}  // namespace quire::c
