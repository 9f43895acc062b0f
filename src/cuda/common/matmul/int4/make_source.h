// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/matmul/int4/packed_order.h"
#include "cuda/common/matmul/int4/source.h"

namespace quire::cuda {

// A plain int4, gptq, gptq_v2 or awq weight.
Int4Source make_source(const Weight& weight);
// The order of a packed weight.
Int4Order order_of(const Weight& packed);

}  // namespace quire::cuda
