// SPDX-License-Identifier: Apache-2.0
#include "cpu/rope/kernels.h"
#include "cpu/simd/rows_norm.h"
#include "cpu/simd/rows_rotate.h"

namespace quire::cpu {
namespace QUIRE_CPU_TARGET {
namespace {

// One token's angles, made once for all its heads, and room for a row.
struct Angles : RotationAngles {
  float* row;  // one that is normalised, or the rotated columns of a key that lie in several parts

  Angles(const RopeJob& job, std::byte* scratch)
      : RotationAngles(reinterpret_cast<float*>(scratch), job.rope_dim),
        row(wide + num_floats(job.rope_dim)) {}
};

std::int64_t scratch_bytes(const RopeJob& job) {
  const std::int64_t widest = job.head_dim > job.key_width ? job.head_dim : job.key_width;
  return (Angles::num_floats(job.rope_dim) + padded_columns(widest)) * std::int64_t{sizeof(float)};
}

void load_angles(const RopeJob& job, const TokenPlace& place, const Angles& angles) {
  for (std::int64_t s = 0; s < job.num_sections; ++s) {
    const RopeSection& section = job.sections[s];
    const std::int64_t row = section.position_ids == nullptr
                                 ? place.position
                                 : section.position_ids[place.token * job.ids_stride];
    const std::byte* freqs =
        job.freqs_cis + row * job.freqs_stride + bytes_for(job.freqs_dtype, 2 * section.first);
    widen_row(job.freqs_dtype, freqs, 2 * section.count, angles.wide + 2 * section.first);
  }
  for (std::int64_t i = 1; i < job.rope_dim && job.inverse; i += 2) {
    angles.wide[i] = -angles.wide[i];
  }
  angles.arrange(job.rope_dim, job.interleaved);
}

template <DType kFrom, DType kTo>
void rotate_row(const RopeJob& job, const Angles& angles, const std::byte* from, std::byte* to) {
  rotate_columns<kFrom, kTo>(angles, job.rope_dim, job.interleaved, from, to);
}

template <DType kFrom, DType kTo>
void copy_columns(const std::byte* from, std::int64_t count, std::byte* to) {
  if constexpr (kFrom == kTo) {
    if (from != to) __builtin_memcpy(to, from, static_cast<std::size_t>(bytes_for(kTo, count)));
  } else {
    over_lanes(count, [&](std::int64_t i, auto lanes) {
      store_lanes<kTo>(load_lanes<kFrom>(from + i * kElementBytes<kFrom>, lanes),
                       to + i * kElementBytes<kTo>, lanes);
    });
  }
}

// Both steps on a row in f32; rotated: its first rotated column.
void normalize_and_rotate(const RopeJob& job, const RopeNorm& norm, const Angles& angles,
                          std::int64_t rotated) {
  auto* row = reinterpret_cast<std::byte*>(angles.row);
  const double sum = sum_of_squares<DType::f32>(row, norm.columns);
  scale_columns<DType::f32>(row, norm.columns, norm_factor(sum, norm.columns, job.epsilon),
                            norm.gamma);
  auto* columns = reinterpret_cast<std::byte*>(angles.row + rotated);
  rotate_row<DType::f32, DType::f32>(job, angles, columns, columns);
}

void norm_query(const RopeJob& job, const Angles& angles, std::int64_t token) {
  const std::byte* from = job.q + token * job.q_token_stride;
  std::byte* to = job.out + token * job.out_token_stride;
  for (std::int64_t head = 0; head < job.num_heads; ++head) {
    widen_row(job.q_dtype, from, job.head_dim, angles.row);
    normalize_and_rotate(job, job.q_norm, angles,
                         job.interleaved ? job.head_dim - job.rope_dim : 0);
    narrow_row(job.out_dtype, angles.row, job.head_dim, to);
    from += job.q_head_stride;
    to += job.out_head_stride;
  }
}

template <DType kFrom, DType kTo>
void rotate_query(const RopeJob& job, const Angles& angles, std::int64_t token) {
  const std::int64_t rest = job.head_dim - job.rope_dim;
  const std::int64_t rotated = job.interleaved ? rest : 0;  // first rotated column
  const std::int64_t copied = job.interleaved ? 0 : job.rope_dim;
  const std::byte* from = job.q + token * job.q_token_stride;
  std::byte* to = job.out + token * job.out_token_stride;
  for (std::int64_t head = 0; head < job.num_heads; ++head) {
    rotate_row<kFrom, kTo>(job, angles, from + rotated * kElementBytes<kFrom>,
                           to + rotated * kElementBytes<kTo>);
    if (rest > 0) {
      copy_columns<kFrom, kTo>(from + copied * kElementBytes<kFrom>, rest,
                               to + copied * kElementBytes<kTo>);
    }
    from += job.q_head_stride;
    to += job.out_head_stride;
  }
}

void widen_segments(const RowSegments& segments, const std::byte* row, float* values) {
  for (std::int32_t s = 0; s < segments.count; values += segments.items[s++].count) {
    const RowSegment& segment = segments.items[s];
    widen_row(segment.dtype, row + segment.offset_bytes, segment.count, values);
  }
}

void narrow_segments(const RowSegments& segments, const float* values, std::byte* row) {
  for (std::int32_t s = 0; s < segments.count; values += segments.items[s++].count) {
    const RowSegment& segment = segments.items[s];
    narrow_row(segment.dtype, values, segment.count, row + segment.offset_bytes);
  }
}

void norm_key(const RopeJob& job, const Angles& angles, std::byte* row) {
  widen_segments(job.key_normed, row, angles.row);
  widen_segments(job.key, row, angles.row + job.key_first);
  normalize_and_rotate(job, job.key_norm, angles, job.key_rotated);
  narrow_segments(job.key_normed, angles.row, row);
  narrow_segments(job.key, angles.row + job.key_first, row);
}

void rotate_key(const RopeJob& job, const Angles& angles, std::byte* row) {
  const RowSegments& key = job.key;
  if (job.key_norm.gamma != nullptr) return norm_key(job, angles, row);
  if (key.count == 1) {
    std::byte* columns = row + key.items[0].offset_bytes;
    return on_float(key.items[0].dtype, [&](auto type) {
      constexpr DType kType = decltype(type)::kValue;
      rotate_row<kType, kType>(job, angles, columns, columns);
    });
  }
  auto* wide = reinterpret_cast<std::byte*>(angles.row);
  widen_segments(key, row, angles.row);
  rotate_row<DType::f32, DType::f32>(job, angles, wide, wide);
  narrow_segments(key, angles.row, row);
}

void rotate(const RopeJob& job, const TokenPlace* places, std::int64_t num_places,
            std::byte* scratch) {
  const Angles angles(job, scratch);
  on_activation(job.q_dtype, [&](auto from) {
    on_activation(job.out_dtype, [&](auto to) {
      for (std::int64_t i = 0; i < num_places; ++i) {
        load_angles(job, places[i], angles);
        if (job.q_norm.gamma != nullptr) {
          norm_query(job, angles, places[i].token);
        } else {
          rotate_query<decltype(from)::kValue, decltype(to)::kValue>(job, angles, places[i].token);
        }
        if (places[i].row == nullptr) continue;
        for (std::int64_t head = 0; head < job.num_key_heads; ++head) {
          rotate_key(job, angles, places[i].row + head * job.key_head_stride);
        }
      }
    });
  });
}

constexpr RopeKernels kRopeKernels{.scratch_bytes = scratch_bytes, .rotate = rotate};

}  // namespace
}  // namespace QUIRE_CPU_TARGET

const RopeKernels& rope_kernels(TargetTag<Target::QUIRE_CPU_TARGET>) {
  return QUIRE_CPU_TARGET::kRopeKernels;
}

}  // namespace quire::cpu
