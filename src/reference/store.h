// SPDX-License-Identifier: Apache-2.0
// The new tokens' rows, or their scales, into the cache.
#pragma once

#include "quire/ops/store.h"

namespace quire::reference {

void store(const StoreArgs& args);
void store_scales(const StoreScalesArgs& args);

}  // namespace quire::reference
