// SPDX-License-Identifier: Apache-2.0
#include "cpu/attention/latent_kernels.h"
#include "cpu/attention/latent_rows.h"
#include "cpu/attention/projection.h"
#include "cpu/simd/tile_bf16.h"
#include "cpu/simd/tile_f32.h"

namespace quire::cpu {
namespace QUIRE_CPU_TARGET {
namespace {

// Products that are exact in bf16 run there.
bool takes_bf16(const ProjectionItem& item) {
  return is_fp8(item.weight_dtype) ||
         (item.x_dtype == DType::bf16 && item.weight_dtype == DType::bf16);
}

std::int64_t finish_scratch_bytes(const FinishItem& item) {
  return FinishSpace(item, nullptr).used;
}

std::int64_t projection_scratch_bytes(const ProjectionItem& item) {
  return takes_bf16(item) ? Projection<Bf16Engine>(item, nullptr).used()
                          : Projection<F32Engine>(item, nullptr).used();
}

void project(const ProjectionItem& item, std::byte* scratch) {
  if (takes_bf16(item)) {
    Projection<Bf16Engine>(item, scratch).run();
  } else {
    Projection<F32Engine>(item, scratch).run();
  }
}

constexpr LatentKernels kLatentKernels{.finish_scratch_bytes = finish_scratch_bytes,
                                       .finish = finish_rows,
                                       .rotate = rotate_heads,
                                       .projection_scratch_bytes = projection_scratch_bytes,
                                       .project = project};

}  // namespace
}  // namespace QUIRE_CPU_TARGET

const LatentKernels& latent_kernels(TargetTag<Target::QUIRE_CPU_TARGET>) {
  return QUIRE_CPU_TARGET::kLatentKernels;
}

}  // namespace quire::cpu
