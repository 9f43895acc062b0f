// SPDX-License-Identifier: Apache-2.0
// What src/cpu/kernels/indexer.cpp offers, per target.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/mla_indexer/indexer_item.h"
#include "cpu/runtime/target_switch.h"

namespace quire::cpu {

// The scratch of a group lives from pack_queries to its last score.
struct IndexerKernels {
  std::int64_t (*scratch_bytes)(const IndexerShape& shape);
  void (*pack_queries)(const IndexerShape& shape, const IndexerQuery* queries, std::byte* scratch);
  // Packs the keys; score() of every token that sees some of them follows.
  void (*pack_keys)(const IndexerShape& shape, const IndexerKeys& keys, std::byte* scratch);
  // scores [kIndexerChunk] of the packed keys, which are still what they were.
  void (*score)(const IndexerShape& shape, std::int64_t token, const IndexerKeys& keys,
                float* scores, std::byte* scratch);
  // Appends the survivors to out, which has room for kIndexerChunk + 16 more; returns their number.
  int (*filter)(const CandidateFilter& filter, const float* scores, ScoredKey* out);
  // The k-th greatest of ranks [count], which have room up to a multiple of 16.
  std::int32_t (*kth_rank)(std::int32_t* ranks, std::int64_t count, std::int64_t k);
};

const IndexerKernels& indexer_kernels(TargetTag<Target::portable>);
const IndexerKernels& indexer_kernels(TargetTag<Target::avx2>);
const IndexerKernels& indexer_kernels(TargetTag<Target::avx512>);
const IndexerKernels& indexer_kernels(TargetTag<Target::avx512_vnni>);
const IndexerKernels& indexer_kernels(TargetTag<Target::amx>);
const IndexerKernels& indexer_kernels(TargetTag<Target::neon>);
const IndexerKernels& indexer_kernels(TargetTag<Target::neon_bf16>);

inline const IndexerKernels& indexer_kernels(Target target) {
  return on_target(target, [](auto tag) -> const IndexerKernels& { return indexer_kernels(tag); });
}

}  // namespace quire::cpu
