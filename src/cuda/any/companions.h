// SPDX-License-Identifier: Apache-2.0
// The memory-bound ops on GPUs of compute capability 8.0 and newer. Each starts kernels on the context's stream,
// allocates nothing and never waits. They take any valid problem, but for the columns of index and compressed rows.
#pragma once

#include <cstdint>

#include "quire/ops/compress_keys.h"
#include "quire/ops/copy_pages.h"
#include "quire/ops/merge_states.h"
#include "quire/ops/quantize_fp8.h"
#include "quire/ops/quantize_index_queries.h"
#include "quire/ops/remap_sparse_indices.h"
#include "quire/ops/rms_norm.h"
#include "quire/ops/rope.h"
#include "quire/ops/row_offsets.h"
#include "quire/ops/store_index_keys.h"

namespace quire::cuda::any {

namespace compress_keys {
inline constexpr std::int64_t kMostColumns = 8192;  // a row stands in shared memory
void compress_keys(const CompressKeysArgs& args, const Context& context);
}  // namespace compress_keys
namespace copy_pages {
void copy_pages(const CopyPagesArgs& args, const Context& context);
}
namespace index_rows {
inline constexpr std::int64_t kMostColumns = 8192;  // a row stands in shared memory
void store_index_keys(const StoreIndexKeysArgs& args, const Context& context);
void quantize_index_queries(const QuantizeIndexQueriesArgs& args, const Context& context);
}  // namespace index_rows
namespace merge_states {
void merge_states(const MergeStatesArgs& args, const Context& context);
}
namespace quantize_fp8 {
void quantize_fp8(const QuantizeFp8Args& args, const Context& context);
}
namespace remap_sparse_indices {
void remap_sparse_indices(const RemapSparseIndicesArgs& args, const Context& context);
}
namespace rms_norm {
void rms_norm(const RmsNormArgs& args, const Context& context);
}
namespace rope {
void rope(const RopeArgs& args, const Context& context);
}
namespace row_offsets {
void row_offsets(const RowOffsetsArgs& args, const Context& context);
}

}  // namespace quire::cuda::any
