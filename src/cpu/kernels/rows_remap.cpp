// SPDX-License-Identifier: Apache-2.0
#include "cpu/remap_sparse_indices/kernels.h"
#include "cpu/simd/convert.h"

namespace quire::cpu {
namespace QUIRE_CPU_TARGET {
namespace {

constexpr std::int32_t kAbsent = -1;

// Division by the page size as a multiplication: exact for positions below 2^31, since the
// multiplier is the next integer above 2^shift / page_size and shift is 31 + ceil(log2 page_size).
class PageDivider {
 public:
  explicit PageDivider(std::int32_t page_size) : page_size_(page_size) {
    while ((std::int64_t{1} << (shift_ - 31)) < page_size) ++shift_;
    multiplier_ = (std::uint64_t{1} << shift_) / static_cast<std::uint64_t>(page_size) + 1;
  }
  std::int64_t column(std::int32_t position) const {
    return static_cast<std::int64_t>((static_cast<std::uint64_t>(position) * multiplier_) >>
                                     shift_);
  }
  std::int32_t row_in_page(std::int32_t position, std::int64_t column) const {
    return position - static_cast<std::int32_t>(column) * page_size_;
  }

 private:
  int shift_ = 31;
  std::int32_t page_size_;
  std::uint64_t multiplier_;
};

// Items are taken by value: what a loop reads of them stays in registers, whatever it stores.
void remap_one_by_one(RemapItem item) {
  const auto page_size = static_cast<std::int32_t>(item.pages.page_size);
  const PageDivider divider(page_size);
  for (; item.count > 0; --item.count, item.positions += item.stride, item.out += item.out_stride) {
    const std::int32_t position = *item.positions;
    std::int32_t row = position;  // negative: passes through
    if (position >= 0) {
      const std::int64_t column = divider.column(position);
      const std::int64_t page = item.pages.page_at(0, column);
      row = page < 0 ? kAbsent
                     : static_cast<std::int32_t>(page) * page_size +
                           divider.row_in_page(position, column);
    }
    *item.out = row;
  }
}

// Page sizes that are powers of two, contiguous positions; what is left of a last vector goes one
// by one.
void remap_vectors(RemapItem item) {
  const hn::RebindToSigned<U32Tag> i32;
  const U32Tag u32;
  const auto page_size = static_cast<std::int32_t>(item.pages.page_size);
  const int shift = __builtin_ctz(static_cast<unsigned>(page_size));
  const auto zero = hn::Zero(i32);
  const auto last_column = hn::Set(i32, static_cast<std::int32_t>(item.pages.max_pages - 1));
  const auto in_page = hn::Set(i32, page_size - 1);
  const auto num_pages = hn::Set(u32, static_cast<std::uint32_t>(item.pages.num_pages));
  const auto gather = [i32](const std::uint32_t* ids, auto columns) {
    return hn::GatherIndex(i32, reinterpret_cast<const std::int32_t*>(ids), columns);
  };
  for (; item.count >= kF32Lanes; item.count -= kF32Lanes) {
    const auto position = hn::LoadU(i32, item.positions);
    const auto column = hn::ShiftRightSame(position, shift);
    // Never past the table's row: such lanes read some page of it and are dropped below.
    const auto safe = hn::Min(hn::Max(column, zero), last_column);
    const auto page = item.pages.gather(safe, gather);
    const auto is_assigned = hn::RebindMask(i32, hn::Lt(hn::BitCast(u32, page), num_pages));
    const auto row = hn::Or(hn::ShiftLeftSame(page, shift), hn::And(position, in_page));
    const auto found = hn::And(is_assigned, hn::Eq(column, safe));
    const auto result = hn::IfThenElse(found, row, hn::Set(i32, kAbsent));
    hn::StoreU(hn::IfThenElse(hn::Lt(position, zero), position, result), i32, item.out);
    item.positions += kF32Lanes;
    item.out += kF32Lanes;
  }
  remap_one_by_one(item);
}

void remap(const RemapItem& item) {
  const PageCursor& pages = item.pages;
  const bool is_power_of_two = (pages.page_size & (pages.page_size - 1)) == 0;
  const bool has_vectors = item.stride == 1 && item.out_stride == 1 && is_power_of_two &&
                           pages.max_pages > 0 && pages.max_pages <= 0x7fffffff;
  if (has_vectors) return remap_vectors(item);
  remap_one_by_one(item);
}

constexpr RemapKernels kRemapKernels{.remap = remap};

}  // namespace
}  // namespace QUIRE_CPU_TARGET

const RemapKernels& remap_kernels(TargetTag<Target::QUIRE_CPU_TARGET>) {
  return QUIRE_CPU_TARGET::kRemapKernels;
}

}  // namespace quire::cpu
