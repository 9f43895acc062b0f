// SPDX-License-Identifier: Apache-2.0
// K and V of a flash_attention as views of a layer.
#pragma once

#include "quire/kv_layer_view.h"
#include "quire/ops/flash_attention.h"

namespace quire::cuda {

struct AttentionViews {
  KvLayerView keys;
  KvLayerView values;  // MLA: the keys again
};

// Of a cache; or of k, v and key_offsets, as one page of all rows in which sequences begin at their offsets
// (KvLayerView::first_rows). The lengths of the latter are args.cache.cache_lengths, which whoever launches a kernel
// has made.
AttentionViews attention_views(const FlashAttentionArgs& args);

}  // namespace quire::cuda
