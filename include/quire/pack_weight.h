// SPDX-License-Identifier: Apache-2.0
// Weights are read by every token and written once: pack_weight puts one into the order in which
// the kernels of its device read it. The result is a Weight like any other. On the CPU results do not
// depend on it, bit for bit, only the time does; on a GPU a packed int4 weight gets the tensor cores'
// kernels, whose sums have another order than the general ones'.
//
//   std::vector<std::byte> storage(packed_bytes(weight));
//   const Weight packed = pack_weight(weight, storage_view);  // `weight` may go, `storage` must stay
#pragma once

#include <cstdint>

#include "quire/context.h"
#include "quire/export.h"
#include "quire/weight.h"

namespace quire {

// The order that the best kernel for the weight reads; context.kernel narrows the choice as it does
// for an op ("cpu/avx2"). Throws Error for an invalid weight, for one that is packed already, and
// where no kernel of the weight's device reads packed weights.
QUIRE_API WeightPacking packing_for(const Weight& weight, const Context& context = {});

// Size of the storage that pack_weight needs.
QUIRE_API std::int64_t packed_bytes(const Weight& weight, const Context& context = {});

// Fills storage, u8 [at least packed_bytes] on a 64-byte border of the weight's device, and returns a
// view of it; on a GPU it does so on the context's stream. An act-order perm is copied along.
QUIRE_API Weight pack_weight(const Weight& weight, const TensorView& storage,
                             const Context& context = {});

// The weight whose packed bytes are in `storage` already: copied there, or read from a file that this
// version of the library wrote. `weight` is what pack_weight returned then; its addresses are not
// followed. Throws Error where no kernel of this machine reads that order, where the size is another
// one, and on the host for a perm that is none.
QUIRE_API Weight packed_view(const Weight& weight, const TensorView& storage,
                             const Context& context = {});

}  // namespace quire
