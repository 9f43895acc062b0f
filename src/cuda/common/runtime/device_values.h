// SPDX-License-Identifier: Apache-2.0
// Small tensors of a device, read on the host. For checks in debug mode: ops themselves never wait.
#pragma once

#include <cstddef>
#include <vector>

#include "quire/tensor_view.h"

namespace quire::cuda {

// Work put on the stream is being recorded: nothing there has run, and nothing may be waited for.
bool is_capturing(void* stream);

// The bytes from a tensor's first element to its last, after everything the stream holds. Waits.
std::vector<std::byte> download(const TensorView& tensor, void* stream);

}  // namespace quire::cuda
