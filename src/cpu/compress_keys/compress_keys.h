// SPDX-License-Identifier: Apache-2.0
// compress_keys on the CPU: every row that has become whole by itself, then the tokens that later rows need.
#pragma once

#include "cpu/runtime/target.h"
#include "quire/ops/compress_keys.h"

namespace quire::cpu {

void compress_keys(const CompressKeysArgs& args, const Context& context, Target target);

}  // namespace quire::cpu
