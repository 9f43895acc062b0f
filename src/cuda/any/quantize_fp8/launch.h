// SPDX-License-Identifier: Apache-2.0
// quantize_fp8 on every GPU: rows quantized in groups. Starts kernels on the context's stream, allocates nothing
// and never waits.
#pragma once

#include <string>

#include "quire/ops/quantize_fp8.h"

namespace quire::cuda::any::quantize_fp8 {

// Empty: any valid problem on a GPU of compute capability 8.0 or newer.
std::string refuse(const QuantizeFp8Problem& problem);
void quantize_fp8(const QuantizeFp8Args& args, const Context& context);

}  // namespace quire::cuda::any::quantize_fp8
