// SPDX-License-Identifier: Apache-2.0
// Rows that TMA takes to their pages: a kernel that any/store chooses on a GPU of compute capability 9.0.
#pragma once

#include "cuda/any/store/params.h"

namespace quire::cuda::sm90::store {

// Of a layout with staged rows.
void launch_code_rows(const any::store::StoreParams& rows, const any::store::CodeLayout& layout,
                      int sms, cudaStream_t stream);
void launch_code_rows(const any::store::StoreSides& rows, const any::store::CodeLayout& layout,
                      int sms, cudaStream_t stream);

}  // namespace quire::cuda::sm90::store
