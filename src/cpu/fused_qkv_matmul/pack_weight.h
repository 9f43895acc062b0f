// SPDX-License-Identifier: Apache-2.0
// Packing of projection weights for the CPU's engines.
#pragma once

#include <string>

#include "cpu/runtime/target.h"
#include "quire/context.h"
#include "quire/weight.h"

namespace quire::cpu {

// The order that the target's kernels read.
WeightPacking packing_for(const Weight& weight, Target target);

// A plain weight as it will be once it is packed for the target, but for its data and perm.
Weight packed_form(const Weight& weight, Target target);

// Size of the storage of such a form.
std::int64_t packed_bytes(const Weight& form, bool has_perm);

// Fills the storage and returns its view.
Weight pack_weight(const Weight& weight, std::byte* storage, const Context& context, Target target);

// Empty, or why the target cannot read a weight in that order. is_f32: of f32 numbers.
std::string refuse_packing(WeightPacking packing, bool is_f32, Target target);

}  // namespace quire::cpu
