// SPDX-License-Identifier: Apache-2.0
// What src/cpu/kernels/attention_latent.cpp offers, per target.
#pragma once

#include "cpu/attention/latent_item.h"
#include "cpu/runtime/target_switch.h"

namespace quire::cpu {

struct LatentKernels {
  std::int64_t (*finish_scratch_bytes)(const FinishItem& item);
  void (*finish)(const FinishItem& item, std::byte* scratch);
  void (*rotate)(const RotateItem& item);
  std::int64_t (*projection_scratch_bytes)(const ProjectionItem& item);
  void (*project)(const ProjectionItem& item, std::byte* scratch);
};

const LatentKernels& latent_kernels(TargetTag<Target::portable>);
const LatentKernels& latent_kernels(TargetTag<Target::avx2>);
const LatentKernels& latent_kernels(TargetTag<Target::avx512>);
const LatentKernels& latent_kernels(TargetTag<Target::avx512_vnni>);
const LatentKernels& latent_kernels(TargetTag<Target::amx>);
const LatentKernels& latent_kernels(TargetTag<Target::neon>);
const LatentKernels& latent_kernels(TargetTag<Target::neon_bf16>);

inline const LatentKernels& latent_kernels(Target target) {
  return on_target(target, [](auto tag) -> const LatentKernels& { return latent_kernels(tag); });
}

}  // namespace quire::cpu
