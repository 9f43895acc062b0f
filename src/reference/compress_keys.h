// SPDX-License-Identifier: Apache-2.0
// Gated pooling of tokens into rows of a cache, token by token and column by column.
#pragma once

#include "quire/ops/compress_keys.h"
#include "reference/arithmetic.h"

namespace quire::reference {

void compress_keys(const CompressKeysArgs& args, Arithmetic arithmetic = {});

}  // namespace quire::reference
