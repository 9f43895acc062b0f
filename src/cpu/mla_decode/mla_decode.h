// SPDX-License-Identifier: Apache-2.0
// mla_decode on the CPU: every problem that is valid and on the host.
#pragma once

#include <string>

#include "cpu/runtime/target.h"
#include "quire/ops/mla_decode.h"

namespace quire::cpu {

void mla_decode(const MlaDecodeArgs& args, const Context& context, Target target);

}  // namespace quire::cpu
