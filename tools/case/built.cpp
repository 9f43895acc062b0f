// SPDX-License-Identifier: Apache-2.0
#include "tools/case/built.h"

#include <algorithm>

#include "tools/case/random_stream.h"

namespace quire::tools {
namespace {

void allow_row(Memory& memory, const PagedKVCache& cache, const RowPlace& place) {
  std::byte* row = row_address(cache, place);
  if (row != nullptr) memory.allow_write(row, cache.row_format->row_bytes);
  if (!cache.scales.has_value() || has_static_scales(cache)) return;
  for (std::int64_t slot = 0; slot < cache.scales->shape[5]; ++slot) {
    std::byte* scale = scale_address(cache, place, slot);
    if (scale != nullptr) memory.allow_write(scale, bytes_for(cache.scales->dtype, 1));
  }
}

}  // namespace

TensorView Built::output(const std::string& name, DType dtype,
                         std::initializer_list<std::int64_t> shape) {
  static constexpr std::byte kUnwritten{0xff};
  const TensorView view = memory.allocate_repeating(name, dtype, shape, {&kUnwritten, 1});
  in_place(name, view);
  return view;
}

void Built::in_place(const std::string& name, const TensorView& tensor) {
  memory.allow_write(tensor);
  outputs.push_back({.name = name, .view = tensor});
}

void Built::written_rows(WrittenRows written) {
  if (memory.is_deferred(written.cache.blocks.data)) return;  // no byte of it will be compared
  const std::int64_t slots = written.cache.scales.has_value() ? written.cache.scales->shape[5] : 0;
  memory.charge("places of written rows", written.num_places(),
                static_cast<std::int64_t>(sizeof(RowPlace)) +
                    (1 + slots) * static_cast<std::int64_t>(sizeof(ByteRange)));
  for (const RowPlace& place : written.places()) allow_row(memory, written.cache, place);
  rows.push_back(std::move(written));
}

std::int64_t WrittenRows::num_places() const {
  return lengths.tokens() * cache.num_kv_heads() * ((key ? 1 : 0) + (value ? 1 : 0));
}

std::vector<RowPlace> WrittenRows::places() const {
  std::vector<RowPlace> result;
  for (const Side side : {Side::key, Side::value}) {
    if (side == Side::key ? !key : !value) continue;
    std::int64_t index = 0;
    for (std::int64_t b = 0; b < lengths.batch(); ++b) {
      for (std::int64_t token = lengths.cached[static_cast<std::size_t>(b)];
           token < lengths.keys(b); ++token) {
        if (std::ranges::binary_search(skipped, index++)) continue;
        for (std::int64_t head = 0; head < cache.num_kv_heads(); ++head) {
          result.push_back(
              {.layer = layer, .side = side, .sequence = b, .token = token, .head = head});
        }
      }
    }
  }
  return result;
}

TensorView build_tensor(Memory& memory, std::uint64_t seed, const std::string& name, DType dtype,
                        std::initializer_list<std::int64_t> shape, double amplitude, double mean) {
  RandomStream stream(seed, name, dtype, amplitude, mean);
  const std::int64_t bytes = Memory::bytes_of(name, dtype, {shape.begin(), shape.size()});
  if (!memory.defers(bytes)) {
    const TensorView view = memory.allocate(name, dtype, shape);
    stream.copy(view.as<std::byte>(), 0, view.numel());
    return view;
  }
  std::vector<std::byte> period(static_cast<std::size_t>(bytes_for(dtype, RandomStream::kPeriod)));
  stream.copy(period.data(), 0, RandomStream::kPeriod);
  return memory.allocate_repeating(name, dtype, shape, period);
}

}  // namespace quire::tools
