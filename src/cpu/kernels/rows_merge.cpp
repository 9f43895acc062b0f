// SPDX-License-Identifier: Apache-2.0
#include <hwy/contrib/math/math-inl.h>

#include "cpu/merge_states/kernels.h"
#include "cpu/simd/rows_lanes.h"

namespace quire::cpu {
namespace QUIRE_CPU_TARGET {
namespace {

constexpr std::int64_t kRowsPerBlock = 16;  // whole vectors of f64 on every target
constexpr float kNoKeys = -__builtin_inff();
constexpr float kAbsent = -1.0f;  // in place of the weight of a state without keys

// Rows are tokens · heads, flattened.
struct Row {
  std::int64_t token;
  std::int64_t head;

  Row(const MergeJob& job, std::int64_t row)
      : token(row / job.num_heads), head(row % job.num_heads) {}
};

struct Scratch {
  float* weights;          // [num_states][kRowsPerBlock], LSEs at first
  float* totals;           // [kRowsPerBlock]
  const std::byte** rows;  // [num_states] states with keys, of one row
  float* row_weights;      // [num_states]

  Scratch(const MergeJob& job, std::byte* memory)
      : weights(reinterpret_cast<float*>(memory)),
        totals(weights + job.num_states * kRowsPerBlock),
        rows(reinterpret_cast<const std::byte**>(totals + kRowsPerBlock)),
        row_weights(reinterpret_cast<float*>(rows + job.num_states)) {}
};

std::int64_t scratch_bytes(const MergeJob& job) {
  constexpr std::int64_t kFloat = sizeof(float);
  constexpr std::int64_t kPointer = sizeof(const std::byte*);
  return (job.num_states + 1) * kRowsPerBlock * kFloat + job.num_states * (kPointer + kFloat);
}

void load_lses(const MergeJob& job, std::int64_t first, std::int64_t count, const Scratch& to) {
  for (std::int64_t r = 0; r < kRowsPerBlock; ++r) {
    const Row row(job, first + (r < count ? r : 0));  // rows that are not there repeat the first
    const float* lses =
        job.lses + row.token * job.lses_token_stride + row.head * job.lses_head_stride;
    for (std::int64_t s = 0; s < job.num_states; ++s) {
      to.weights[s * kRowsPerBlock + r] = lses[s * job.lses_state_stride];
    }
  }
}

// LSEs of Lanes(f64) rows become weights, in double: an f32 logarithm would cost the LSE its last
// bit. lanes: the rows' column in weights and totals.
void weigh(const MergeJob& job, float* weights, float* totals) {
  const F64Tag f64;
  const F32HalfTag half;
  const auto no_keys = hn::Set(half, kNoKeys);
  auto highest = no_keys;  // NaN does not count
  for (std::int64_t s = 0; s < job.num_states; ++s) {
    const auto lse = hn::LoadU(half, weights + s * kRowsPerBlock);
    highest = hn::IfThenElse(hn::Gt(lse, highest), lse, highest);
  }
  // Where no state has keys nothing is added; a reference point of 0 keeps NaN from -inf + inf out.
  const auto has_keys = hn::Gt(highest, no_keys);
  const F64Vector point = hn::PromoteTo(f64, hn::IfThenElseZero(has_keys, highest));
  const auto exponential = [&](std::int64_t s) {
    const F64Vector lse = hn::PromoteTo(f64, hn::LoadU(half, weights + s * kRowsPerBlock));
    const F64Vector distance = hn::Sub(lse, point);  // ≤ 0, or NaN; -inf gives 0
    return hn::IfThenElse(hn::IsNaN(distance), distance, hn::Exp(f64, distance));
  };
  F64Vector sum = hn::Zero(f64);
  for (std::int64_t s = 0; s < job.num_states; ++s) sum = hn::Add(sum, exponential(s));
  const F64Vector smallest = hn::Set(f64, 0x1p-149);
  for (std::int64_t s = 0; s < job.num_states; ++s) {
    const F64Vector weight = hn::Div(exponential(s), sum);
    // A weight too small for f32 stays positive: times infinity it must not be NaN.
    const auto is_positive = hn::Gt(weight, hn::Zero(f64));
    const F64Vector kept = hn::IfThenElse(is_positive, hn::Max(weight, smallest), weight);
    const auto is_absent = hn::Eq(hn::LoadU(half, weights + s * kRowsPerBlock), no_keys);
    hn::StoreU(hn::IfThenElse(is_absent, hn::Set(half, kAbsent), hn::DemoteTo(half, kept)), half,
               weights + s * kRowsPerBlock);
  }
  const auto is_number = hn::Gt(sum, hn::Zero(f64));
  const F64Vector log = hn::IfThenElse(is_number, hn::Log(f64, sum), sum);
  const auto total = hn::DemoteTo(half, hn::Add(point, log));
  const auto is_empty = hn::Eq(hn::DemoteTo(half, sum), hn::Zero(half));
  hn::StoreU(hn::IfThenElse(is_empty, no_keys, total), half, totals);
}

template <DType kFrom, DType kTo>
void add_states(const MergeJob& job, const Scratch& scratch, std::int64_t count, std::byte* out) {
  const F32Tag f32;
  over_lanes(job.value_dim, [&](std::int64_t i, auto lanes) {
    F32Vector sum = hn::Zero(f32);
    for (std::int64_t s = 0; s < count; ++s) {
      const F32Vector value = load_lanes<kFrom>(scratch.rows[s] + i * kElementBytes<kFrom>, lanes);
      sum = hn::MulAdd(hn::Set(f32, scratch.row_weights[s]), value, sum);
    }
    store_lanes<kTo>(sum, out + i * kElementBytes<kTo>, lanes);
  });
}

template <DType kFrom, DType kTo>
void merge_row(const MergeJob& job, Row row, const float* weights, const Scratch& scratch) {
  const std::byte* state = job.states + row.token * job.token_stride + row.head * job.head_stride;
  std::int64_t count = 0;
  for (std::int64_t s = 0; s < job.num_states; ++s) {
    const float weight = weights[s * kRowsPerBlock];
    if (weight == kAbsent) continue;  // its values may be anything
    scratch.rows[count] = state + s * job.state_stride;
    scratch.row_weights[count++] = weight;
  }
  add_states<kFrom, kTo>(
      job, scratch, count,
      job.out + row.token * job.out_token_stride + row.head * job.out_head_stride);
}

void merge(const MergeJob& job, std::int64_t first, std::int64_t last, std::byte* memory) {
  const Scratch scratch(job, memory);
  for (; first < last; first += kRowsPerBlock) {
    const std::int64_t count = last - first < kRowsPerBlock ? last - first : kRowsPerBlock;
    load_lses(job, first, count, scratch);
    constexpr std::int64_t kLanes = hn::MaxLanes(F64Tag());
    for (std::int64_t r = 0; r < kRowsPerBlock; r += kLanes) {
      weigh(job, scratch.weights + r, scratch.totals + r);
    }
    on_activation(job.dtype, [&](auto from) {
      on_activation(job.out_dtype, [&](auto to) {
        for (std::int64_t r = 0; r < count; ++r) {
          merge_row<decltype(from)::kValue, decltype(to)::kValue>(job, Row(job, first + r),
                                                                  scratch.weights + r, scratch);
        }
      });
    });
    for (std::int64_t r = 0; r < count && job.lse != nullptr; ++r) {
      const Row row(job, first + r);
      job.lse[row.token * job.lse_token_stride + row.head * job.lse_head_stride] =
          scratch.totals[r];
    }
  }
}

constexpr MergeKernels kMergeKernels{.scratch_bytes = scratch_bytes, .merge = merge};

}  // namespace
}  // namespace QUIRE_CPU_TARGET

const MergeKernels& merge_kernels(TargetTag<Target::QUIRE_CPU_TARGET>) {
  return QUIRE_CPU_TARGET::kMergeKernels;
}

}  // namespace quire::cpu
