// SPDX-License-Identifier: Apache-2.0
#include "fuzz/targets/hostile.h"

#include <array>
#include <cstring>

#include "ops/memory_span.h"
#include "quire/element.h"

namespace quire::test {
namespace {

constexpr std::int64_t kMostBytes = 1 << 12;  // of a block of its own

bool is_on_host(const TensorView& view) {
  return view.device.kind == DeviceKind::cpu;
}

// What the library itself would look for, or nothing where it must refuse before it looks.
std::optional<std::int64_t> reach_of(const TensorView& view) {
  if (view.rank < 0 || view.rank > kMaxRank) return std::nullopt;
  for (int dim = 0; dim < view.rank; ++dim) {
    if (view.shape[dim] < 0 || view.strides[dim] < 0) return std::nullopt;
  }
  return ops::span_bytes(view);
}

void resize(Draw& draw, TensorView& view) {
  const auto dim = static_cast<std::size_t>(draw.below(kMaxRank));
  view.shape[dim] = draw.one_in(2) ? draw.below(9) : hostile_integer(draw);
  // Mostly what a framework would have made of the new size.
  if (draw.one_in(3) || view.rank < 0 || view.rank > kMaxRank) return;
  std::int64_t stride = 1;
  for (int d = view.rank - 1; d >= 0; --d) {
    view.strides[static_cast<std::size_t>(d)] = stride;
    stride = ops::saturating_product(
        stride, std::max<std::int64_t>(view.shape[static_cast<std::size_t>(d)], 0));
  }
}

}  // namespace

std::int64_t hostile_integer(Draw& draw) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  static constexpr std::array<std::int64_t, 24> kBorders{
      0,         1,         2,         3,         7,         8,         16,
      127,       128,       -1,        -2,        -128,      1 << 16,   (1ll << 31) - 1,
      1ll << 31, 1ll << 32, 1ll << 33, 1ll << 40, 1ll << 59, 1ll << 60, 1ll << 62,
      kMost,     -kMost,    -kMost - 1};
  if (draw.one_in(4)) return static_cast<std::int64_t>(draw.bits());
  return draw.pick(std::span<const std::int64_t>(kBorders));
}

double hostile_number(Draw& draw) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return draw.pick({0.0, -0.0, 1.0, -1.0, 1e-300, 1e300, kInfinity, -kInfinity,
                    std::numeric_limits<double>::quiet_NaN(), 0.5, 1e10});
}

void Grounds::add(const TensorView& view) {
  if (view.data == nullptr) return;  // left out
  const std::optional<std::int64_t> bytes = reach_of(view);
  if (bytes.has_value()) known_[view.data] = std::max(known_[view.data], *bytes);
}

void* Grounds::allocate(std::int64_t bytes) {
  return blocks_.emplace_back(static_cast<std::size_t>(bytes), std::byte{0}).data();
}

void Grounds::ground(TensorView& view) {
  const std::optional<std::int64_t> bytes = reach_of(view);
  // Where nothing may be read, an address may be anything.
  if (!is_on_host(view) || !bytes.has_value() || *bytes == 0 || view.data == nullptr) return;
  const auto known = known_.find(view.data);
  if (known != known_.end() && *bytes <= known->second) return;
  const bool is_own = !blocks_.empty() && view.data == blocks_.back().data() &&
                      *bytes <= static_cast<std::int64_t>(blocks_.back().size());
  if (is_own) return;
  view.data = *bytes <= kMostBytes ? allocate(*bytes) : nullptr;
}

void Grounds::change_contents(Draw& draw, TensorView& view) {
  const std::optional<std::int64_t> bytes = reach_of(view);
  const auto known = known_.find(view.data);
  const bool has_memory = is_on_host(view) && known != known_.end() && bytes.has_value() &&
                          *bytes > 0 && *bytes <= std::min(known->second, kMostBytes);
  if (!has_memory) return;
  auto* copy = static_cast<std::byte*>(allocate(*bytes));
  std::memcpy(copy, view.data, static_cast<std::size_t>(*bytes));
  view.data = copy;
  const std::int64_t size = std::max<std::int64_t>(1, bits(view.dtype) / 8);
  const std::int64_t value = draw.one_in(2) ? draw.below(8) : hostile_integer(draw);
  std::memcpy(copy + draw.below(*bytes / size) * size, &value, static_cast<std::size_t>(size));
}

void spoil(Draw& draw, Grounds& grounds, TensorView& view) {
  switch (draw.below(9)) {
    case 0:
      view.rank = static_cast<int>(draw.one_in(4) ? hostile_integer(draw) : draw.between(-1, 7));
      break;
    case 1:
      view.strides[static_cast<std::size_t>(draw.below(kMaxRank))] = hostile_integer(draw);
      break;
    case 2:
      view.dtype = static_cast<DType>(draw.below(12));
      break;
    case 3:
      view.device = {.kind = static_cast<DeviceKind>(draw.below(2)),
                     .index = static_cast<int>(hostile_integer(draw))};
      break;
    case 4:
      view.data = draw.one_in(2)
                      ? nullptr
                      : reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(view.data) + 1);
      break;
    case 5:
    case 6:
      grounds.change_contents(draw, view);
      break;
    default:
      resize(draw, view);
  }
}

void spoil(Draw& draw, RowFormat& format) {
  if (draw.one_in(3)) {
    const auto latent = static_cast<std::int32_t>(hostile_integer(draw));
    const auto rope = static_cast<std::int32_t>(hostile_integer(draw));
    const auto block = static_cast<std::int32_t>(draw.between(1, 1 << 20));
    if (draw.one_in(3)) {
      format = RowFormat::int4(1 + (latent & 0xffff), draw.one_in(2) ? 32 : block, DType::f16,
                               draw.one_in(2));
      return;
    }
    format = draw.one_in(2) ? RowFormat::mla_fp8_token(latent & 0xffff, rope & 0xffff)
                            : RowFormat::mla_fp8_block(latent & 0xffff, rope & 0xffff, block);
    return;
  }
  format.num_parts =
      static_cast<std::int32_t>(draw.one_in(4) ? hostile_integer(draw) : draw.between(0, 5));
  format.row_bytes =
      static_cast<std::int32_t>(draw.one_in(2) ? hostile_integer(draw) : draw.below(64));
  for (RowPart& part : format.parts) {
    part = {
        .dtype = static_cast<DType>(draw.below(std::size(kAllDTypes))),
        .width = static_cast<std::int32_t>(draw.one_in(3) ? hostile_integer(draw) : draw.below(16)),
        .offset_bytes =
            static_cast<std::int32_t>(draw.one_in(3) ? hostile_integer(draw) : draw.below(16)),
        .scale_source = static_cast<ScaleSource>(draw.below(3)),
        .granularity =
            static_cast<std::int32_t>(draw.one_in(3) ? hostile_integer(draw) : draw.below(16)),
        .scale_offset_bytes = static_cast<std::int32_t>(hostile_integer(draw)),
        .scale_dtype = static_cast<DType>(draw.below(std::size(kAllDTypes)))};
  }
}

void spoil(Draw& draw, Mask& mask) {
  static constexpr std::array<std::uint8_t, 64> kBits{1, 0, 1, 1};
  TensorView bits =
      TensorView::contiguous(const_cast<std::uint8_t*>(kBits.data()), DType::u8, {8, 8});
  if (draw.one_in(2)) bits.rank = static_cast<int>(draw.below(3));
  if (draw.one_in(3)) bits.data = nullptr;
  static constexpr std::array<std::int32_t, 8> kBounds{3, -1, 0x7fffffff, 0};
  TensorView bounds = TensorView::contiguous(const_cast<std::int32_t*>(kBounds.data()), DType::i32,
                                             {draw.pick<std::int64_t>({4, 5, 8})});
  if (draw.one_in(3)) bounds.rank = static_cast<int>(draw.below(3));
  if (draw.one_in(3)) bounds.data = nullptr;
  if (draw.one_in(3)) bounds.strides[0] = hostile_integer(draw);
  const auto leaf = [&] {
    switch (draw.below(6)) {
      case 0:
        return Mask::full();
      case 1:
        return Mask::sliding_window(hostile_integer(draw));
      case 2:
        return Mask::chunked(hostile_integer(draw));
      case 3:
        return Mask::tree(bits);
      case 4:
        return Mask::key_intervals(bounds, bounds);
      default:
        return Mask::causal();
    }
  };
  mask = leaf();
  for (std::int64_t parts = draw.below(4); parts > 0; --parts) {
    mask = draw.one_in(2) ? mask & leaf() : leaf() | mask;
  }
}

}  // namespace quire::test
