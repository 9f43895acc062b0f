// SPDX-License-Identifier: Apache-2.0
#include "quire/kv_layer_view.h"

#include "quire/paged_kv_operand.h"

namespace quire {
namespace {

RowAddress address_of(const KvLayerView& view, std::int64_t sequence, std::int64_t head,
                      std::int64_t token) {
  RowAddress address;
  PagedKvOperand(view).locate(sequence, head, token, 1, &address);
  return address;
}

}  // namespace

double KvLayerView::load(std::int64_t sequence, std::int64_t head, std::int64_t token,
                         std::int32_t column) const {
  return layout().load(address_of(*this, sequence, head, token), column);
}

double KvLayerView::load_quantized(std::int64_t sequence, std::int64_t head, std::int64_t token,
                                   std::int32_t column) const {
  return layout().load_quantized(address_of(*this, sequence, head, token), column);
}

double KvLayerView::load_scale(std::int64_t sequence, std::int64_t head, std::int64_t token,
                               std::int32_t column) const {
  return layout().load_scale(address_of(*this, sequence, head, token), column);
}

void KvLayerView::store(std::int64_t sequence, std::int64_t head, std::int64_t token,
                        std::int32_t column, double value) const {
  layout().store(address_of(*this, sequence, head, token), column, value);
}

void KvLayerView::store_scale(std::int64_t sequence, std::int64_t head, std::int64_t token,
                              std::int32_t column, double scale) const {
  layout().store_scale(address_of(*this, sequence, head, token), column, scale);
}

}  // namespace quire
