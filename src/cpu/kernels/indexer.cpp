// SPDX-License-Identifier: Apache-2.0
#include "cpu/mla_indexer/filter_keys.h"
#include "cpu/mla_indexer/kernels.h"
#if defined(__AMX_BF16__)
#include "cpu/mla_indexer/score_keys_amx.h"
#else
#include "cpu/mla_indexer/score_keys.h"
#endif

namespace quire::cpu {
namespace QUIRE_CPU_TARGET {
namespace {

std::int64_t scratch_bytes(const IndexerShape& shape) {
  return IndexerSpace(shape, nullptr).used();
}

void pack_queries(const IndexerShape& shape, const IndexerQuery* queries, std::byte* scratch) {
  IndexerSpace(shape, scratch).pack_queries(queries);
}

// Queries and keys stay packed from one call to the next.
void pack_keys(const IndexerShape& shape, const IndexerKeys& keys, std::byte* scratch) {
  IndexerSpace(shape, scratch, Contents::kept).pack_keys(keys);
}

void score(const IndexerShape& shape, std::int64_t token, const IndexerKeys& keys, float* scores,
           std::byte* scratch) {
  IndexerSpace(shape, scratch, Contents::kept).score(token, keys, scores);
}

constexpr IndexerKernels kIndexerKernels{.scratch_bytes = scratch_bytes,
                                         .pack_queries = pack_queries,
                                         .pack_keys = pack_keys,
                                         .score = score,
                                         .filter = filter_candidates,
                                         .kth_rank = kth_rank};

}  // namespace
}  // namespace QUIRE_CPU_TARGET

const IndexerKernels& indexer_kernels(TargetTag<Target::QUIRE_CPU_TARGET>) {
  return QUIRE_CPU_TARGET::kIndexerKernels;
}

}  // namespace quire::cpu
