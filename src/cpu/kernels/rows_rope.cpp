// SPDX-License-Identifier: Apache-2.0
#include "cpu/rope/kernels.h"
#include "cpu/simd/rows_lanes.h"

namespace quire::cpu {
namespace QUIRE_CPU_TARGET {
namespace {

// One token's angles as the rotation reads them, made once for all its heads.
//   half-split:  cos [rope_dim / 2], sin [rope_dim / 2]
//   interleaved: cos and sin [rope_dim], each twice, the first sin of a pair negative
// Padded to whole vectors.
struct Angles {
  float* wide;  // [rope_dim] as freqs_cis has them
  float* cos;
  float* sin;
  float* row;  // [rope_dim] of a key whose rotated columns lie in several parts

  static std::int64_t padded(const RopeJob& job) {
    return (job.rope_dim + kF32Lanes - 1) / kF32Lanes * kF32Lanes + kF32Lanes;
  }
  Angles(const RopeJob& job, std::byte* scratch)
      : wide(reinterpret_cast<float*>(scratch)),
        cos(wide + padded(job)),
        sin(cos + padded(job)),
        row(sin + padded(job)) {}
};

std::int64_t scratch_bytes(const RopeJob& job) {
  return 4 * Angles::padded(job) * std::int64_t{sizeof(float)};
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
  if (!job.interleaved) {
    for (std::int64_t j = 0; j < job.rope_dim / 2; ++j) {
      angles.cos[j] = angles.wide[2 * j];
      angles.sin[j] = angles.wide[2 * j + 1];
    }
    return;
  }
  const F32Tag f32;
  for (std::int64_t i = 0; i < job.rope_dim; i += kF32Lanes) {
    const F32Vector pairs = hn::LoadU(f32, angles.wide + i);
    const F32Vector sin = hn::DupOdd(pairs);
    hn::StoreU(hn::DupEven(pairs), f32, angles.cos + i);
    hn::StoreU(hn::OddEven(sin, hn::Neg(sin)), f32, angles.sin + i);
  }
}

// from and to: the first rotated column; they may be the same.
template <DType kFrom, DType kTo>
void rotate_halves(const Angles& angles, std::int64_t rope_dim, const std::byte* from,
                   std::byte* to) {
  const F32Tag f32;
  const std::int64_t half = rope_dim / 2;
  over_lanes(half, [&](std::int64_t i, auto lanes) {
    const F32Vector a = load_lanes<kFrom>(from + i * kElementBytes<kFrom>, lanes);
    const F32Vector b = load_lanes<kFrom>(from + (i + half) * kElementBytes<kFrom>, lanes);
    const F32Vector cos = hn::LoadU(f32, angles.cos + i);
    const F32Vector sin = hn::LoadU(f32, angles.sin + i);
    store_lanes<kTo>(hn::NegMulAdd(b, sin, hn::Mul(a, cos)), to + i * kElementBytes<kTo>, lanes);
    store_lanes<kTo>(hn::MulAdd(b, cos, hn::Mul(a, sin)), to + (i + half) * kElementBytes<kTo>,
                     lanes);
  });
}

template <DType kFrom, DType kTo>
void rotate_pairs(const Angles& angles, std::int64_t rope_dim, const std::byte* from,
                  std::byte* to) {
  const F32Tag f32;
  over_lanes(rope_dim, [&](std::int64_t i, auto lanes) {
    const F32Vector x = load_lanes<kFrom>(from + i * kElementBytes<kFrom>, lanes);
    const F32Vector other = hn::Mul(hn::Reverse2(f32, x), hn::LoadU(f32, angles.sin + i));
    store_lanes<kTo>(hn::MulAdd(x, hn::LoadU(f32, angles.cos + i), other),
                     to + i * kElementBytes<kTo>, lanes);
  });
}

template <DType kFrom, DType kTo>
void rotate_row(const RopeJob& job, const Angles& angles, const std::byte* from, std::byte* to) {
  if (job.interleaved) {
    rotate_pairs<kFrom, kTo>(angles, job.rope_dim, from, to);
  } else {
    rotate_halves<kFrom, kTo>(angles, job.rope_dim, from, to);
  }
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

void rotate_key(const RopeJob& job, const Angles& angles, std::byte* row) {
  const RowSegments& key = job.key;
  if (key.count == 1) {
    std::byte* columns = row + key.items[0].offset_bytes;
    return on_float(key.items[0].dtype, [&](auto type) {
      constexpr DType kType = decltype(type)::kValue;
      rotate_row<kType, kType>(job, angles, columns, columns);
    });
  }
  auto* wide = reinterpret_cast<std::byte*>(angles.row);
  float* next = angles.row;
  for (std::int32_t s = 0; s < key.count; next += key.items[s++].count) {
    widen_row(key.items[s].dtype, row + key.items[s].offset_bytes, key.items[s].count, next);
  }
  rotate_row<DType::f32, DType::f32>(job, angles, wide, wide);
  next = angles.row;
  for (std::int32_t s = 0; s < key.count; next += key.items[s++].count) {
    narrow_row(key.items[s].dtype, next, key.items[s].count, row + key.items[s].offset_bytes);
  }
}

void rotate(const RopeJob& job, const TokenPlace* places, std::int64_t num_places,
            std::byte* scratch) {
  const Angles angles(job, scratch);
  on_activation(job.q_dtype, [&](auto from) {
    on_activation(job.out_dtype, [&](auto to) {
      for (std::int64_t i = 0; i < num_places; ++i) {
        load_angles(job, places[i], angles);
        rotate_query<decltype(from)::kValue, decltype(to)::kValue>(job, angles, places[i].token);
        if (places[i].row == nullptr || job.key.count == 0) continue;
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
