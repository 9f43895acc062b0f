// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <optional>
#include <string>

#include "cuda/any/companions.h"
#include "cuda/any/rope/params.h"
#include "cuda/common/runtime/alignment.h"
#include "cuda/common/runtime/device_facts.h"
#include "cuda/common/runtime/device_scope.h"
#include "quire/error.h"

namespace quire::cuda::any::rope {
namespace {

constexpr int kWarpLanes = 32;
constexpr int kMostSlots = 4;
constexpr std::int64_t kMostRows = (std::int64_t{1} << 31) - 1;  // of 32-bit index arithmetic

RopeAngles angles_of(const RopeArgs& args) {
  RopeAngles angles{.freqs = args.freqs_cis.as<const std::byte>(),
                    .dtype = args.freqs_cis.dtype,
                    .row_stride = args.freqs_cis.strides[0],
                    .column_stride = args.freqs_cis.strides[1],
                    .max_pos = args.freqs_cis.shape[0],
                    .position_ids = nullptr,
                    .section_stride = 0,
                    .token_stride = 0,
                    .num_sections = static_cast<int>(args.mrope_sections.size()),
                    .section_ends = {},
                    .sine_sign = args.inverse ? -1.0f : 1.0f};
  if (args.position_ids.has_value()) {
    angles.position_ids = args.position_ids->as<const std::uint32_t>();
    angles.section_stride = args.position_ids->strides[0];
    angles.token_stride = args.position_ids->strides[1];
  }
  if (angles.num_sections > kMaxRopeSections) {
    throw Error(ErrorCode::unsupported, "rope", "mrope_sections",
                "at most " + std::to_string(kMaxRopeSections) + " sections on cuda",
                std::to_string(angles.num_sections));
  }
  int end = 0;
  for (int s = 0; s < angles.num_sections; ++s) {
    end += static_cast<int>(args.mrope_sections[static_cast<std::size_t>(s)]);
    angles.section_ends[s] = end;
  }
  return angles;
}

RopeNorm norm_of(const std::optional<TensorView>& gamma) {
  if (!gamma) return {.gamma = nullptr, .dtype = DType::f32, .columns = 0, .exact_inverse = 0.0f};
  const auto columns = static_cast<std::uint32_t>(gamma->shape[0]);
  return {.gamma = gamma->as<const std::byte>(),
          .dtype = gamma->dtype,
          .columns = static_cast<int>(columns),
          .exact_inverse = std::has_single_bit(columns) ? 1.0f / static_cast<float>(columns) : 0};
}

// Bytes from the start of a key row to the first column that is rotated.
std::int64_t bytes_to_rope(const RowFormat& format, std::int64_t rope_dim, bool interleaved) {
  const std::int64_t first = interleaved ? format.width() - rope_dim : 0;
  const RowFormat::Column place = format.locate(static_cast<std::int32_t>(first));
  const RowPart& part = format.parts[static_cast<std::size_t>(place.part)];
  return part.offset_bytes + bytes_for(part.dtype, place.index);
}

RopeParams params_of(const RopeArgs& args) {
  const KvLayerView key = args.cache.key(args.layer);
  const TensorView& q = args.q;
  const TensorView& out = args.out;
  return {
      .q = q.as<const std::byte>(),
      .out = out.as<std::byte>(),
      .q_dtype = q.dtype,
      .out_dtype = out.dtype,
      .q_token_bytes = bytes_for(q.dtype, q.strides[0]),
      .q_head_bytes = bytes_for(q.dtype, q.strides[1]),
      .out_token_bytes = bytes_for(out.dtype, out.strides[0]),
      .out_head_bytes = bytes_for(out.dtype, out.strides[1]),
      .tokens = q.shape[0],
      .heads = static_cast<int>(q.shape[1]),
      .head_dim = static_cast<int>(q.shape[2]),
      .rope_dim = static_cast<int>(args.freqs_cis.shape[1]),
      .key_heads = args.rotate_key ? key.num_heads : 0,
      .key_width = key.width(),
      .key_rope_bytes = bytes_to_rope(key.row_format, args.freqs_cis.shape[1], args.interleaved),
      .row_offsets = args.row_offsets.as<const std::uint32_t>(),
      .key = key,
      .angles = angles_of(args),
      .interleaved = args.interleaved,
      .q_norm = norm_of(args.q_gamma),
      .key_norm = norm_of(args.key_gamma),
      .epsilon = args.epsilon,
      .weight_offset = args.weight_offset};
}

// Pairs that one vector (interleaved) or two (half-split) of a lane hold.
int pairs_per_lane(const RopeParams& params) {
  return params.interleaved ? kVectorColumns / 2 : kVectorColumns;
}

bool query_is_aligned(const RopeParams& params) {
  return params.out_dtype == params.q_dtype &&
         params.tokens * (params.heads + params.key_heads) < kMostRows &&
         params.rope_dim % (2 * pairs_per_lane(params)) == 0 &&
         params.head_dim % kVectorColumns == 0 &&
         are_aligned(kVectorBytes, params.q, params.out, params.q_token_bytes, params.q_head_bytes,
                     params.out_token_bytes, params.out_head_bytes);
}

// Columns [first, last) of a key row stand in one part of q's dtype, as whole vectors.
bool key_is_aligned(const RopeParams& params, int first, int last) {
  const KvLayerView& key = params.key;
  const RowFormat::Column place = key.row_format.locate(first);
  const RowPart& part = key.row_format.parts[static_cast<std::size_t>(place.part)];
  return part.dtype == params.q_dtype && place.index + last - first <= part.width &&
         place.index % kVectorColumns == 0 &&
         are_aligned(kVectorBytes, part.offset_bytes, key.data, key.page_stride_bytes,
                     key.token_stride_bytes, key.head_stride_bytes);
}

bool has_whole_vectors(const RopeNorm& norm) {
  return norm.columns % kVectorColumns == 0 && are_aligned(kVectorBytes, norm.gamma);
}

bool takes_plain(const RopeParams& params) {
  const int first = params.first_column(params.key.width());
  return !params.has_norm() && query_is_aligned(params) &&
         params.rope_dim / 2 / pairs_per_lane(params) <= kWarpLanes &&
         (params.key_heads == 0 || key_is_aligned(params, first, first + params.rope_dim));
}

std::optional<NormedLayout> normed_layout(const RopeParams& params) {
  const int key_width = params.key_heads == 0 ? 0 : params.key.width();
  const bool takes_key = params.key_heads == 0 ||
                         (key_width % kVectorColumns == 0 && key_is_aligned(params, 0, key_width));
  if (!query_is_aligned(params) || !takes_key || !has_whole_vectors(params.q_norm) ||
      !has_whole_vectors(params.key_norm)) {
    return std::nullopt;
  }
  const int vectors = std::max(params.head_dim, key_width) / kVectorColumns;
  // Half-split: the partner of a vector is in the same lane.
  const int half = params.rope_dim / 2 / kVectorColumns;
  const int lanes = params.interleaved ? (vectors <= 16 ? 8 : vectors <= 32 ? 16 : 32) : half;
  const int slots = (vectors + lanes - 1) / lanes;
  const bool fits = std::has_single_bit(static_cast<unsigned>(lanes)) && lanes <= kWarpLanes &&
                    slots <= kMostSlots;
  if (!fits) return std::nullopt;
  return NormedLayout{.lanes = lanes, .slots = slots};
}

bool takes_tokens(const RopeParams& params) {
  const auto spans_row = [](const RopeNorm& norm) {
    return norm.gamma == nullptr || norm.columns == kNormedRowColumns;
  };
  return !params.interleaved && bits(params.q_dtype) == 16 && params.angles.stand_in_rows() &&
         params.rope_dim == kNormedRowColumns && params.head_dim == kNormedRowColumns &&
         (params.key_heads == 0 || params.key_width == kNormedRowColumns) &&
         spans_row(params.q_norm) && spans_row(params.key_norm) &&
         params.angles.max_pos < kMostRows / 2;
}

}  // namespace

void rope(const RopeArgs& args, const Context& context) {
  const DeviceScope scope(args.q.device);
  const auto stream = static_cast<cudaStream_t>(context.stream);
  const RopeParams params = params_of(args);
  if (params.tokens == 0 || params.key.batch == 0) return;
  const int sms = num_sms(args.q.device.index);
  if (takes_plain(params)) return launch_plain(params, sms, stream);
  if (params.has_norm()) {
    if (const auto layout = normed_layout(params)) {
      // Heads that come in eights fill chunks of one token's; others are taken by the token.
      if ((params.heads + params.key_heads) % 8 != 0 && takes_tokens(params)) {
        return launch_tokens(params, sms, stream);
      }
      return launch_normed(params, *layout, sms, stream);
    }
  }
  launch_general(params, stream);
}

}  // namespace quire::cuda::any::rope
