// SPDX-License-Identifier: Apache-2.0
#include "ops/device_check.h"

#include <cstdlib>
#include <deque>
#include <string_view>
#include <vector>

#include "cuda/common/runtime/device_values.h"
#include "ops/argument.h"
#include "ops/cache_check.h"
#include "ops/copy_pages/page_pairs.h"
#include "ops/flash_attention/key_blocks.h"
#include "ops/position_check.h"

namespace quire::ops {
namespace {

// Tensors as they stand on the device, with memory on the host.
class HostCopies {
 public:
  explicit HostCopies(const Context& context) : stream_(context.stream) {}

  TensorView of(const TensorView& tensor) {
    bytes_.push_back(cuda::download(tensor, stream_));
    TensorView copy = tensor;
    copy.data = bytes_.back().data();
    copy.device = {};
    return copy;
  }

 private:
  void* stream_;
  std::deque<std::vector<std::byte>> bytes_;
};

}  // namespace

bool is_device_check_on(Device device, const Context& context) {
  const char* value = std::getenv("QUIRE_CHECK");
  return device.kind == DeviceKind::cuda && value != nullptr && std::string_view(value) == "1" &&
         !cuda::is_capturing(context.stream);
}

void check_device_batch(std::string_view op, const PagedKVCache& cache,
                        const TensorView& row_offsets, std::optional<std::int64_t> tokens,
                        const std::optional<TensorView>& key_lengths, const Context& context) {
  HostCopies copies(context);
  PagedKVCache on_host = cache;
  on_host.cache_lengths = copies.of(cache.cache_lengths);
  on_host.page_table = copies.of(cache.page_table);
  if (cache.scales_page_table) on_host.scales_page_table = copies.of(*cache.scales_page_table);
  // Without a layer: the scales themselves stay where they are.
  CacheUse use;
  TensorView keys;
  if (key_lengths) {
    keys = copies.of(*key_lengths);
    use.key_lengths = &keys;
  }
  check_batch_values(Arguments(op), on_host, use, copies.of(row_offsets), tokens);
}

void check_device_positions(std::string_view op, const TensorView& position_ids,
                            std::int64_t num_rows, const Context& context) {
  HostCopies copies(context);
  check_positions(Arguments(op), copies.of(position_ids), num_rows);
}

void check_device_offsets(std::string_view op, const TensorView& row_offsets, std::int64_t tokens,
                          const TensorView& key_offsets, std::int64_t keys,
                          const Context& context) {
  HostCopies copies(context);
  check_row_offsets(Arguments(op), copies.of(row_offsets), tokens);
  check_offsets(Arguments(op), {"key_offsets", "keys"}, copies.of(key_offsets), keys);
}

void check_device_blocks(std::string_view op, const TensorView& key_blocks,
                         const Context& context) {
  HostCopies copies(context);
  check_block_values(Arguments(op), copies.of(key_blocks));
}

void check_device_slots(std::string_view op, const PagedKVCache& cache, const TensorView& slots,
                        const Context& context) {
  HostCopies copies(context);
  check_slot_values(Arguments(op), cache, copies.of(slots));
}

void check_device_pairs(std::string_view op, const TensorView& pairs, std::int64_t num_pages,
                        const Context& context) {
  HostCopies copies(context);
  check_page_pairs(Arguments(op), copies.of(pairs), num_pages);
}

}  // namespace quire::ops
