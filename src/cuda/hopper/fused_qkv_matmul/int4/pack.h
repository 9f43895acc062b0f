// SPDX-License-Identifier: Apache-2.0
// Packing of int4 weights for the Hopper kernels, as the ops layer sees it: no CUDA headers.
#pragma once

#include <string>

#include "quire/context.h"
#include "quire/weight.h"

namespace quire::cuda::hopper {

// Empty, or why no Hopper kernel reads the weight packed.
std::string refuse_packing(const Weight& weight);
// A plain weight as it will be once it is packed, but for its data and perm.
Weight packed_form(const Weight& weight);
// Size of the storage of such a form.
std::int64_t packed_bytes(const Weight& form, bool has_perm);
// Fills the storage on the context's stream and returns its view.
Weight pack_weight(const Weight& weight, std::byte* storage, const Context& context);

}  // namespace quire::cuda::hopper
