// SPDX-License-Identifier: Apache-2.0
// A build without CUDA has the same candidates as one with it; these refuse. One file per op here
// defines what its launch.h declares.
#pragma once

#include <string>
#include <string_view>

#include "quire/device.h"

namespace quire::cuda {

std::string refuse_absent(Device device);
// Reached only past a refusal, which is a mistake in the caller's candidate list.
[[noreturn]] void throw_absent(std::string_view op);

}  // namespace quire::cuda
