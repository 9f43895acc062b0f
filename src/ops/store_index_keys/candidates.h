// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/candidate.h"
#include "quire/ops/store_index_keys.h"

namespace quire::ops {

// Best first. The one list that supports, plan and the op read.
CandidateList<StoreIndexKeysProblem, StoreIndexKeysArgs> store_index_keys_candidates();

}  // namespace quire::ops
