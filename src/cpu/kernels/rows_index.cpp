// SPDX-License-Identifier: Apache-2.0
#include "cpu/index_rows/kernels.h"
#include "cpu/simd/rows_encode.h"
#include "cpu/simd/rows_hadamard.h"
#include "cpu/simd/rows_norm.h"
#include "cpu/simd/rows_rotate.h"
#include "cpu/simd/rows_scale.h"

namespace quire::cpu {
namespace QUIRE_CPU_TARGET {
namespace {

// One worker's room: a token's angles, and a row.
struct RowSpace : RotationAngles {
  float* row;

  RowSpace(const IndexRowJob& job, std::byte* scratch)
      : RotationAngles(reinterpret_cast<float*>(scratch), job.rope_dim),
        row(wide + num_floats(job.rope_dim)) {}
  std::byte* bytes() const { return reinterpret_cast<std::byte*>(row); }
};

std::int64_t scratch_bytes(const IndexRowJob& job) {
  return (RowSpace::num_floats(job.rope_dim) + padded_columns(job.columns)) *
         std::int64_t{sizeof(float)};
}

void load_angles(const IndexRowJob& job, std::int64_t position, const RowSpace& space) {
  if (job.freqs_cis == nullptr) return;
  widen_row(job.freqs_dtype, job.freqs_cis + position * job.freqs_stride, job.rope_dim, space.wide);
  space.arrange(job.rope_dim, job.interleaved);
}

double sum_of(const float* row, std::int64_t count) {
  const F64Tag f64;
  F64Vector sum = hn::Zero(f64);
  over_lanes(count, [&](std::int64_t i, auto lanes) {
    const F32Vector value = load_gamma(row + i, lanes);
    sum = hn::Add(sum, hn::Add(lower_as_f64(value), upper_as_f64(value)));
  });
  return hn::GetLane(hn::SumOfLanes(f64, sum));
}

// The mean is taken off first, so that the squares are those of small numbers. It comes off in two parts: what rounding
// it to f32 leaves is much beside deviations that are small beside the mean.
void normalize(const IndexRowJob& job, const RowSpace& space) {
  const double mean = sum_of(space.row, job.columns) / static_cast<double>(job.columns);
  const auto upper = static_cast<float>(mean);
  const auto lower = static_cast<float>(mean - static_cast<double>(upper));
  const F32Vector uppers = hn::Set(F32Tag(), upper);
  const F32Vector lowers = hn::Set(F32Tag(), lower);
  over_lanes(job.columns, [&](std::int64_t i, auto lanes) {
    std::byte* place = space.bytes() + i * kElementBytes<DType::f32>;
    const F32Vector value = hn::Sub(load_lanes<DType::f32>(place, lanes), uppers);
    store_lanes<DType::f32>(hn::Sub(value, lowers), place, lanes);
  });
  const double squares = sum_of_squares<DType::f32>(space.bytes(), job.columns);
  const auto factor = static_cast<float>(norm_factor(squares, job.columns, job.epsilon));
  const F32Vector factors = hn::Set(F32Tag(), factor);
  over_lanes(job.columns, [&](std::int64_t i, auto lanes) {
    std::byte* place = space.bytes() + i * kElementBytes<DType::f32>;
    const F32Vector value = hn::Mul(load_lanes<DType::f32>(place, lanes), factors);
    store_lanes<DType::f32>(hn::MulAdd(value, load_gamma(job.norm_weight + i, lanes),
                                       load_gamma(job.norm_bias + i, lanes)),
                            place, lanes);
  });
}

// All steps of one raw row; gives the scale of the codes.
float quantize_one(const IndexRowJob& job, const std::byte* x, const RowSpace& space,
                   std::byte* codes) {
  widen_row(job.dtype, x, job.columns, space.row);
  if (job.norm_weight != nullptr) normalize(job, space);
  if (job.freqs_cis != nullptr) {
    rotate_columns<DType::f32, DType::f32>(space, job.rope_dim, job.interleaved, space.bytes(),
                                           space.bytes());
  }
  if (job.hadamard) {
    const double factor = 1.0 / __builtin_sqrt(static_cast<double>(job.columns));
    hadamard_row(space.row, job.columns, static_cast<float>(factor));
  }
  const float amax = largest_of<DType::f32>(space.bytes(), job.columns);
  const float scale = fp8_scale(amax, 448.0, job.power_of_two);
  quantize_row<DType::f32, DType::fp8_e4m3>(space.bytes(), job.columns, scale, codes);
  return scale;
}

void store(const StoreIndexKeysJob& job, const TokenPlace* places, std::int64_t num_places,
           std::byte* scratch) {
  const RowSpace space(job.rows, scratch);
  for (std::int64_t i = 0; i < num_places; ++i) {
    const TokenPlace& place = places[i];
    if (place.row == nullptr) continue;
    load_angles(job.rows, place.position, space);
    const float scale = quantize_one(job.rows, job.rows.x + place.token * job.rows.token_stride,
                                     space, place.row + job.codes_offset);
    std::byte* target = job.scale_offset < 0 ? place.plane : place.row + job.scale_offset;
    if (target != nullptr) __builtin_memcpy(target, &scale, sizeof(scale));
  }
}

void quantize(const QuantizeIndexQueriesJob& job, const TokenPlace* places, std::int64_t num_places,
              std::byte* scratch) {
  const RowSpace space(job.rows, scratch);
  for (std::int64_t i = 0; i < num_places; ++i) {
    const std::int64_t token = places[i].token;
    load_angles(job.rows, places[i].position, space);
    for (std::int64_t head = 0; head < job.rows.num_heads; ++head) {
      const float scale = quantize_one(
          job.rows, job.rows.x + token * job.rows.token_stride + head * job.rows.head_stride, space,
          job.out + token * job.out_token_stride + head * job.out_head_stride);
      double weight = job.factor;
      if (job.weights != nullptr) {
        weight *= widen_one(job.weights_dtype, job.weights + token * job.weights_token_stride +
                                                   head * job.weights_head_stride);
      }
      job.q_scale[token * job.scale_token_stride + head * job.scale_head_stride] =
          static_cast<float>(static_cast<double>(scale) * weight);
    }
  }
}

void widen(DType dtype, const std::byte* values, std::int64_t count, float* wide) {
  widen_row(dtype, values, count, wide);
}

constexpr IndexRowKernels kIndexRowKernels{
    .scratch_bytes = scratch_bytes, .widen = widen, .store = store, .quantize = quantize};

}  // namespace
}  // namespace QUIRE_CPU_TARGET

const IndexRowKernels& index_row_kernels(TargetTag<Target::QUIRE_CPU_TARGET>) {
  return QUIRE_CPU_TARGET::kIndexRowKernels;
}

}  // namespace quire::cpu
