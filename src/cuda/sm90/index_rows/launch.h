// SPDX-License-Identifier: Apache-2.0
// Index keys that TMA brings: a kernel that any/index_rows chooses on a GPU of compute capability 9.0.
#pragma once

#include "cuda/any/index_rows/params.h"

namespace quire::cuda::sm90::index_rows {

// Of rows that takes_vectors().
void launch_keys(const any::index_rows::IndexRowParams& params,
                 const any::index_rows::KeyTarget& target,
                 const any::index_rows::IndexRowLaunch& launched);

}  // namespace quire::cuda::sm90::index_rows
