// SPDX-License-Identifier: Apache-2.0
// mla_prefill_plan on the CPU: integers only, the same on every target.
#pragma once

#include "quire/ops/mla_prefill.h"

namespace quire::cpu {

void mla_prefill_plan(const MlaPrefillPlanArgs& args);

}  // namespace quire::cpu
