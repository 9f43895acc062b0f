// SPDX-License-Identifier: Apache-2.0
#include "cpu/attention/exponential.h"
#include "cpu/compress_keys/kernels.h"
#include "cpu/simd/carver.h"
#include "cpu/simd/encode_row.h"
#include "cpu/simd/rows_copy.h"
#include "cpu/simd/rows_rotate.h"

namespace quire::cpu {
namespace QUIRE_CPU_TARGET {
namespace {

constexpr std::int64_t kBlock = 64;  // columns whose sums are under way at once

const std::byte* at(const RowsOf& rows, std::int64_t row, std::int64_t column) {
  return rows.data + row * rows.stride + bytes_for(rows.dtype, column);
}

struct Scratch {
  Scratch(const CompressJob& job, std::byte* block) {
    Carver carver(block);
    row = carver.take<float>(job.width);
    scales = carver.take<float>(job.plan.num_granules);
    angles = carver.take<float>(RotationAngles::num_floats(job.rope));
    used = carver.used();
  }

  float* row;
  float* scales;
  float* angles;
  std::int64_t used;
};

std::int64_t scratch_bytes(const CompressJob& job) {
  return Scratch(job, nullptr).used;
}

// kv (part 0) or gate (part 1) of a token, from a column on.
void load_columns(const CompressJob& job, const CompressItem& item, std::int64_t token,
                  std::int64_t part, std::int64_t column, std::int64_t count, float* values) {
  if (token < item.cached) {
    const std::byte* row = job.state + item.slot * job.slot_stride +
                           token % job.state_rows * job.state_row_stride + part * job.part_stride;
    return widen_row(job.state_dtype, row + bytes_for(job.state_dtype, column), count, values);
  }
  const RowsOf& rows = part == 0 ? job.kv : job.gate;
  widen_row(rows.dtype, at(rows, item.first_token + token - item.cached, column), count, values);
}

// Sums of a block of columns over the tokens of a window.
class PooledBlock {
 public:
  PooledBlock(const CompressJob& job, const CompressItem& item, std::int64_t first,
              std::int64_t count)
      : job_(job), item_(item), first_(first), count_(count) {
    const std::int64_t begin = (item.begin - job.series + 1) * job.ratio;
    begin_ = begin < 0 ? 0 : begin;
  }

  void write(float* row) {
    const F32Tag f32;
    over_tokens([&](std::int64_t token) {
      load_scores(token);
      over_vectors([&](std::int64_t i) {
        const F32Vector score = hn::Load(f32, scores_ + i);
        const F32Vector largest = hn::Load(f32, largest_ + i);
        const auto is_first = token == begin_;
        const F32Vector larger = hn::IfThenElse(hn::Gt(largest, score), largest, score);
        hn::Store(is_first ? score : larger, f32, largest_ + i);
      });
    });
    over_tokens([&](std::int64_t token) {
      load_scores(token);
      load_columns(job_, item_, token, 0, column_of(token), count_, numbers_);
      over_vectors([&](std::int64_t i) { add(i); });
    });
    over_vectors([&](std::int64_t i) {
      hn::Store(hn::Div(hn::Load(f32, total_ + i), hn::Load(f32, sum_ + i)), f32, total_ + i);
    });
    __builtin_memcpy(row + first_, total_, static_cast<std::size_t>(count_) * sizeof(float));
  }

 private:
  template <typename Body> void over_tokens(const Body& body) const {
    for (std::int64_t token = begin_; token < (item_.begin + 1) * job_.ratio; ++token) body(token);
  }
  // Whole vectors: what lies past the columns is never stored.
  template <typename Body> void over_vectors(const Body& body) const {
    for (std::int64_t i = 0; i < count_; i += kF32Lanes) body(i);
  }
  // The first column of the token's series.
  std::int64_t column_of(std::int64_t token) const {
    const bool is_own = token >= item_.begin * job_.ratio;
    return first_ + (is_own ? (job_.series - 1) * job_.width : 0);
  }

  void load_scores(std::int64_t token) {
    const F32Tag f32;
    const std::int64_t column = column_of(token);
    load_columns(job_, item_, token, 1, column, count_, scores_);
    widen_row(job_.bias.dtype, at(job_.bias, token % job_.ratio, column), count_, bias_);
    over_vectors([&](std::int64_t i) {
      hn::Store(hn::Add(hn::Load(f32, scores_ + i), hn::Load(f32, bias_ + i)), f32, scores_ + i);
    });
  }

  void add(std::int64_t i) {
    const F32Tag f32;
    const F32Vector below = hn::Sub(hn::Load(f32, scores_ + i), hn::Load(f32, largest_ + i));
    const F32Vector weight = exp2_vector<F32Exponential>(hn::Mul(below, hn::Set(f32, kLog2E)));
    const F32Vector product = hn::Mul(weight, hn::Load(f32, numbers_ + i));
    hn::Store(hn::Add(hn::Load(f32, sum_ + i), weight), f32, sum_ + i);
    hn::Store(hn::Add(hn::Load(f32, total_ + i), product), f32, total_ + i);
  }

  const CompressJob& job_;
  const CompressItem& item_;
  std::int64_t first_;
  std::int64_t count_;
  std::int64_t begin_;
  alignas(64) float scores_[kBlock] = {};
  alignas(64) float bias_[kBlock] = {};
  alignas(64) float numbers_[kBlock] = {};
  alignas(64) float largest_[kBlock] = {};
  alignas(64) float sum_[kBlock] = {};
  alignas(64) float total_[kBlock] = {};
};

// x · rsqrt(mean x² + ε) · gamma, the factor in double.
void normalise(const CompressJob& job, float* row) {
  double squares = 0.0;
  for (std::int64_t i = 0; i < job.width; ++i) squares += static_cast<double>(row[i]) * row[i];
  const double mean = squares / static_cast<double>(job.width);
  const double factor = 1.0 / __builtin_sqrt(mean + job.epsilon);
  float gamma[kBlock];
  for (std::int64_t first = 0; first < job.width; first += kBlock) {
    const std::int64_t count = job.width - first < kBlock ? job.width - first : kBlock;
    widen_row(job.gamma.dtype, at(job.gamma, 0, first), count, gamma);
    for (std::int64_t i = 0; i < count; ++i) {
      row[first + i] = static_cast<float>(row[first + i] * factor * gamma[i]);
    }
  }
}

void pool(const CompressJob& job, const CompressItem& item, std::byte* block) {
  const Scratch scratch(job, block);
  for (std::int64_t first = 0; first < job.width; first += kBlock) {
    const std::int64_t count = job.width - first < kBlock ? job.width - first : kBlock;
    PooledBlock(job, item, first, count).write(scratch.row);
  }
  normalise(job, scratch.row);
  const RotationAngles angles(scratch.angles, job.rope);
  widen_row(job.freqs.dtype, at(job.freqs, item.begin * job.ratio, 0), job.rope, angles.wide);
  angles.arrange(job.rope, /*interleaved=*/true);
  auto* tail = reinterpret_cast<std::byte*>(scratch.row + job.width - job.rope);
  rotate_pairs<DType::f32, DType::f32>(angles, job.rope, tail, tail);
  encode_row(job.plan, scratch.row, item.row.row, item.row.plane, scratch.scales);
}

void keep(const CompressJob& job, const CompressItem& item) {
  const std::int64_t columns = job.series * job.width;
  for (std::int64_t token = item.begin; token < item.end; ++token) {
    for (const std::int64_t part : {0, 1}) {
      const RowsOf& rows = part == 0 ? job.kv : job.gate;
      const std::byte* from = at(rows, item.first_token + token - item.cached, 0);
      std::byte* to = job.state + item.slot * job.slot_stride +
                      token % job.state_rows * job.state_row_stride + part * job.part_stride;
      if (job.state_dtype == rows.dtype) {
        copy_row(rows.dtype, from, columns, to);
      } else {  // f32, which holds every number of the others
        on_activation(rows.dtype, [&](auto type) {
          round_row<decltype(type)::kValue, DType::f32>(from, columns, to);
        });
      }
    }
  }
}

constexpr CompressKernels kCompressKernels{
    .scratch_bytes = scratch_bytes, .pool = pool, .keep = keep};

}  // namespace
}  // namespace QUIRE_CPU_TARGET

const CompressKernels& compress_kernels(TargetTag<Target::QUIRE_CPU_TARGET>) {
  return QUIRE_CPU_TARGET::kCompressKernels;
}

}  // namespace quire::cpu
