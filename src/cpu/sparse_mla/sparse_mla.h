// SPDX-License-Identifier: Apache-2.0
// sparse_mla on the CPU: every problem that is valid and on the host.
#pragma once

#include <string>

#include "cpu/runtime/target.h"
#include "quire/ops/sparse_mla.h"

namespace quire::cpu {

void sparse_mla(const SparseMlaArgs& args, const Context& context, Target target);

}  // namespace quire::cpu
