// SPDX-License-Identifier: Apache-2.0
// Every op as the referee sees it: its name, how to run it, how the oracle runs it, and which parts
// of its arguments change, so that the oracle can be given copies of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "quire/quire.h"
#include "reference/arithmetic.h"
#include "tools/demo/cache_twin.h"

namespace quire::tools::demo {

// Pointers into an argument struct.
struct Changes {
  struct Output {
    std::string_view name;
    TensorView* tensor;  // written, or changed in place
  };
  struct Cache {
    PagedKVCache* cache;
    std::int64_t* layer;
    TwinPages pages = TwinPages::one_per_sequence;
  };
  std::vector<Output> outputs{};
  std::vector<Cache> caches{};
  const TensorView* row_offsets = nullptr;  // where there are caches
};

template <typename Args> struct Op {
  std::string_view name;
  void (*run)(const Args& args, const Context& context);
  void (*oracle)(const Args& args, reference::Arithmetic arithmetic);
  Changes (*changes)(Args& args);
  Plan (*plan)(const Args& args, const Context& context);
  std::int64_t (*tokens)(const Args& args);
  bool has_naive =
      false;             // the oracle has a naive arithmetic, which tells how large an error may be
  bool is_copy = false;  // of bytes: the same bits by every kernel
  // For results that another kernel may legitimately choose differently: what is wrong with them.
  Fault (*judge)(const Args& args) = nullptr;
};

extern const Op<FusedQkvArgs> kFusedQkvMatmul;
extern const Op<LinearArgs> kLinear;
extern const Op<FlashAttentionArgs> kFlashAttention;
extern const Op<MlaPrefillPlanArgs> kMlaPrefillPlan;
extern const Op<MlaPrefillArgs> kMlaPrefill;
extern const Op<MlaDecodeArgs> kMlaDecode;
extern const Op<StoreIndexKeysArgs> kStoreIndexKeys;
extern const Op<QuantizeIndexQueriesArgs> kQuantizeIndexQueries;
extern const Op<MlaIndexerArgs> kMlaIndexer;
extern const Op<SparseMlaArgs> kSparseMla;
extern const Op<RopeArgs> kRope;
extern const Op<RmsNormArgs> kRmsNormKey;
extern const Op<RmsNormArgs> kRmsNormValue;
extern const Op<StoreArgs> kStore;
extern const Op<StoreScalesArgs> kStoreScales;
extern const Op<MergeStatesArgs> kMergeStates;
extern const Op<QuantizeFp8Args> kQuantizeFp8;
extern const Op<RowOffsetsArgs> kRowOffsets;
extern const Op<RemapSparseIndicesArgs> kRemapSparseIndices;
extern const Op<CopyPagesArgs> kCopyPages;

// All of the names above, in this order.
std::vector<std::string_view> all_op_names();

}  // namespace quire::tools::demo
