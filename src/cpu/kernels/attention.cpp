// SPDX-License-Identifier: Apache-2.0
#include <type_traits>

#include "cpu/attention/attend.h"
#include "cpu/attention/kernels.h"
#include "cpu/attention/projected_rows.h"
#include "cpu/attention/stored_rows.h"
#include "cpu/attention/streamed_rows.h"
#include "cpu/simd/tile_bf16.h"
#include "cpu/simd/tile_f32.h"
#if defined(__AMX_BF16__)
#include "cpu/attention/streamed_strips_amx.h"
#endif

namespace quire::cpu {
namespace QUIRE_CPU_TARGET {
namespace {

template <typename Engine> struct StoredRun {
  StoredRun(const AttentionShape& shape, std::byte* scratch)
      : carver(scratch), space(shape, carver), rows(shape, carver) {}

  Carver carver;
  Workspace<Engine> space;
  StoredRows<typename Engine::Element> rows;
};

// Of bf16 queries. An engine that widens bf16 does so at every product; K and V are widened once when they are packed.
using Bf16Attention = std::conditional_t<kWidensBf16, F32Engine, Bf16Engine>;

// How an engine streams keys past a few rows.
template <typename Engine> struct Streamed {
  static constexpr std::int64_t kMostRows = 16;
  using Space = RowStreamSpace;
  using Run = StreamedRows;
};
#if defined(__AMX_BF16__)
template <> struct Streamed<AmxBf16> {
  static constexpr std::int64_t kMostRows = StreamSpace::kRows;
  using Space = StreamSpace;
  using Run = StreamedStrips;
};
#endif

template <typename Engine> std::int64_t scratch_bytes(const AttentionShape& shape) {
  if (shape.is_streamed) {
    Carver carver(nullptr);
    const typename Streamed<Engine>::Space space(shape, carver);
    return carver.used();
  }
  return StoredRun<Engine>(shape, nullptr).carver.used();
}

template <typename Engine> void attend(const AttentionItem& item, std::byte* scratch) {
  if (item.is_streamed) {
    Carver carver(scratch);
    typename Streamed<Engine>::Space space(shape_of(item), carver);
    return typename Streamed<Engine>::Run(item, space).run();
  }
  StoredRun<Engine> run(shape_of(item), scratch);
  run.rows.set_source(item.source);
  Attention(item, run.space, run.rows).run();
}

template <typename Engine, typename ProjectionEngine> struct ProjectedRun {
  ProjectedRun(const AttentionShape& shape, const UpProjection& up, std::byte* scratch)
      : carver(scratch), space(shape, carver), rows(up, carver) {}

  Carver carver;
  Workspace<Engine> space;
  ProjectedRows<typename Engine::Element, ProjectionEngine> rows;
};

// function(projection engine): bf16 where the attention is and the weight's numbers fit.
template <typename Engine, typename Function>
auto on_projection_engine(const UpProjection& up, Function&& function) {
  if constexpr (kElementType<typename Engine::Element> == DType::bf16) {
    const bool fits = up.weight_dtype == DType::bf16 || is_fp8(up.weight_dtype);
    if (fits) return function(Bf16Engine());
  }
  return function(F32Engine());
}

template <typename Engine>
std::int64_t projected_scratch_bytes(const AttentionShape& shape, const UpProjection& up) {
  return on_projection_engine<Engine>(up, [&](auto engine) {
    return ProjectedRun<Engine, decltype(engine)>(shape, up, nullptr).carver.used();
  });
}

template <typename Engine>
void attend_projected(const AttentionItem& item, const UpProjection& up, std::byte* scratch) {
  on_projection_engine<Engine>(up, [&](auto engine) {
    ProjectedRun<Engine, decltype(engine)> run(shape_of(item), up, scratch);
    run.rows.set_source(item.source);
    run.rows.pack_weight();
    Attention(item, run.space, run.rows).run();
  });
}

void merge(const MergeItem& item, std::byte* scratch) {
  for (std::int64_t row = 0; row < item.num_rows; ++row) {
    merge_row(item, row, reinterpret_cast<float*>(scratch));
  }
}

template <typename Engine> constexpr AttentionEngine engine_of() {
  return {.most_streamed_rows = Streamed<Engine>::kMostRows,
          .scratch_bytes = scratch_bytes<Engine>,
          .attend = attend<Engine>,
          .projected_scratch_bytes = projected_scratch_bytes<Engine>,
          .attend_projected = attend_projected<Engine>,
          .merge = merge};
}

constexpr AttentionKernels kAttentionKernels{.bf16 = engine_of<Bf16Attention>(),
                                             .f32 = engine_of<F32Engine>()};

}  // namespace
}  // namespace QUIRE_CPU_TARGET

const AttentionKernels& attention_kernels(TargetTag<Target::QUIRE_CPU_TARGET>) {
  return QUIRE_CPU_TARGET::kAttentionKernels;
}

}  // namespace quire::cpu
