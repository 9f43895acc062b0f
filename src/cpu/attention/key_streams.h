// SPDX-License-Identifier: Apache-2.0
// The K and V rows of a chunk of keys in the order in which memory is fastest. Few query rows use
// every K and V row once: what counts is how it comes from memory, not how it lies in a cache.
//
// A core that reads one place after another waits most of its time: its prefetchers stop at the end
// of each page of 4 KiB. So the chunk is cut into kStreams short runs of consecutive keys, and all
// of them are read side by side, the first key of each run with all of its heads, then the second.
// Measured on Sapphire Rapids: 37 GB/s instead of 24 on two cores. On Cascade Lake 16 runs are faster than 32.
#pragma once

#include "cpu/attention/row_decode.h"
#include "cpu/simd/carver.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

inline constexpr int kStreamChunk = 128;
#if defined(__x86_64__) && !defined(__AMX_BF16__)
inline constexpr int kStreams = 16;
#else
inline constexpr int kStreams = 32;
#endif
inline constexpr int kStreamSteps = kStreamChunk / kStreams;  // keys of a run

// Row i starts at bases[i] + offset.
struct StreamRows {
  template <typename T> const T* row(int i) const {
    return reinterpret_cast<const T*>(bases[i] + offset);
  }

  const std::byte* const* bases;  // [kStreams]
  std::int64_t offset;            // bytes
  DType dtype;                    // of the numbers: the engine's elements, or what it takes besides
  const float* factors;           // [kStreams] of codes that may have a scale: that times code_unit
};

// Rows of one dtype that need not be decoded here, besides those of the engine's elements.
struct TakenRows {
  constexpr bool has(DType dtype) const {
    return (bf16 && dtype == DType::bf16) || (f16 && dtype == DType::f16) ||
           (e4m3 && dtype == DType::fp8_e4m3) || (i8 && dtype == DType::i8);
  }

  bool bf16 = false;
  bool f16 = false;
  bool e4m3 = false;
  bool i8 = false;
  bool scaled = false;  // codes with one scale a row, too
};

// Rows of codes are multiplied as they stand, each by a factor.
constexpr bool is_code(DType dtype) {
  return dtype == DType::fp8_e4m3 || dtype == DType::i8;
}
// A code's number over what its bits are converted to: half of the conversion is left to the factor.
constexpr float code_unit(DType dtype) {
  return dtype == DType::fp8_e4m3 ? kE4m3Unit : 1.0f;
}

template <typename Element> class KeyStreams {
 public:
  KeyStreams(const AttentionShape& shape, Carver& carver)
      : key_width_(shape.key_width),
        value_width_(shape.value_width),
        widest_(key_width_ > value_width_ ? key_width_ : value_width_) {
    for (Side* side : {&keys_, &values_}) {
      side->addresses = carver.take<RowAddress>(kStreamChunk);
      side->rows = carver.take<const std::byte*>(kStreamChunk);
      side->scales = carver.take<const std::byte*>(kStreamChunk);
    }
    present_ = carver.take<std::uint8_t>(kStreamChunk);
    zeros_ = carver.take<Element>(widest_);
    decoded_ = carver.take<Element>(kStreams * widest_);
    made_ = carver.take<const std::byte*>(kStreams);
    factors_ = carver.take<float>(kStreams);
  }

  void begin(const AttentionItem& item, TakenRows taken) {
    item_ = &item;
    const KeySource& source = item.source;
    keys_.set(source.keys, taken);
    values_.set(source.values, taken);
    for (std::int64_t i = 0; i < widest_; ++i) zeros_[i] = Element{};
  }

  // The keys [first, first + kStreamChunk), of which the item has some.
  void locate(std::int64_t first) {
    for (int i = 0; i < kStreamChunk; ++i) keys_.addresses[i] = values_.addresses[i] = {};
    const std::int64_t left = item_->last_key - first;
    const int begin = static_cast<int>(item_->first_key > first ? item_->first_key - first : 0);
    const int end = static_cast<int>(left < kStreamChunk ? left : kStreamChunk);
    const KeySource& source = item_->source;
    source.keys.operand->locate(source.sequence, item_->first_head, first + begin, end - begin,
                                keys_.addresses + begin);
    if (!source.shared_rows) {
      source.values.operand->locate(source.sequence, item_->first_head, first + begin, end - begin,
                                    values_.addresses + begin);
    }
    has_holes_ = false;
    for (int i = begin; i < end; ++i) {
      if (source.shared_rows) values_.addresses[i] = keys_.addresses[i];
      present_[i] = keys_.addresses[i].row != nullptr;
      has_holes_ = has_holes_ || keys_.addresses[i].row == nullptr;
    }
    is_whole_ = !has_holes_ && end - begin == kStreamChunk;
    keys_.order();
    values_.order();
  }

  bool has_holes() const { return has_holes_; }  // some of the item's keys do not exist
  std::uint8_t* present() const { return present_; }

  // Asks for the first keys' V rows of a head, which have no other key before them to train a
  // prefetcher on.
  void prefetch_values(std::int64_t head) const {
    if (!values_.is_direct || !is_whole_) return;
    const StreamRows rows = find(values_, head, 0);
    const std::int64_t bytes = bytes_for(values_.dtype, value_width_);
    for (int i = 0; i < kStreams; ++i) {
      for (std::int64_t byte = 0; byte < bytes; byte += 64) {
        __builtin_prefetch(rows.template row<std::byte>(i) + byte, 0, 2);
      }
    }
  }

  // One key of each run, zeros where there is none. Valid until the next call.
  StreamRows key_rows(std::int64_t head, int step) const {
    return load(keys_, key_width_, head, step);
  }
  StreamRows value_rows(std::int64_t head, int step) const {
    return load(values_, value_width_, head, step);
  }

 private:
  struct Side {
    void set(const SideSource& source, TakenRows taken) {
      plan = source.plan;
      heads = source.operand->heads();
      const RowRun& run = plan.runs[0];
      const bool is_taken = taken.has(run.dtype) && plan.num_runs == 1;
      is_scaled = is_taken && taken.scaled && run.granule >= 0;
      dtype = is_taken && (is_scaled || run.granule < 0) ? run.dtype : kElementType<Element>;
      is_direct = is_scaled || is_plain(plan, dtype);
      if (!is_scaled) return;
      granule = plan.granules[run.granule];
      const bool is_in_row = granule.source == GranuleScale::in_row;
      scale_stride = is_in_row ? heads.row_stride_bytes : heads.plane_stride_bytes;
    }
    void order() const {
      for (int i = 0; i < kStreamChunk; ++i) {
        const int place = i % kStreamSteps * kStreams + i / kStreamSteps;
        rows[place] = addresses[i].row;
        if (is_scaled) scales[place] = find_scale(addresses[i]);
      }
    }
    // Where the scale of a row stands; null: it is zero.
    const std::byte* find_scale(const RowAddress& address) const {
      const bool is_in_row = granule.source == GranuleScale::in_row;
      const std::byte* base = is_in_row ? address.row : address.plane;
      return address.row == nullptr || base == nullptr ? nullptr : base + granule.scale_offset;
    }
    float load_scale(const std::byte* place, std::int64_t offset) const {
      if (place == nullptr) return 0.0f;
      if (granule.scale_dtype != DType::f32) return widen_one(granule.scale_dtype, place + offset);
      float scale;
      __builtin_memcpy(&scale, place + offset, sizeof(scale));
      return scale;
    }

    RowPlan plan{};
    KvHeads heads{};
    DType dtype = kElementType<Element>;  // of the rows that come out
    bool is_direct = false;               // they are used where they stand
    bool is_scaled = false;               // and are codes, each row with a scale
    RowGranule granule{};                 // of that scale
    std::int64_t scale_stride = 0;        // bytes between heads
    RowAddress* addresses;                // [kStreamChunk], of the item's first head
    const std::byte** rows;               // [kStreamSteps][kStreams]
    const std::byte** scales;             // the same, where is_scaled
  };

  // factors_ of a row of each stream. False: a scale is so large that its factor may not be finite, or is no number.
  bool load_factors(const Side& side, std::int64_t head, int step) const {
    constexpr float kMost = 0x1p100f;
    const float unit = code_unit(side.dtype);
    const std::byte* const* scales = side.scales + step * kStreams;
    const std::int64_t offset = head * side.scale_stride;
    bool are_small = true;
    for (int i = 0; i < kStreams; ++i) {
      const float scale = side.is_scaled ? side.load_scale(scales[i], offset) : 1.0f;
      factors_[i] = scale * unit;
      are_small = are_small && scale <= kMost && scale >= -kMost;
    }
    return are_small;
  }

  StreamRows load(const Side& side, std::int64_t width, std::int64_t head, int step) const {
    const bool has_factors = kElementType<Element> == DType::f32 && is_code(side.dtype);
    if (side.is_direct && (!has_factors || load_factors(side, head, step))) {
      return find(side, head, step);
    }
    RowAddress addresses[kStreams];
    for (int i = 0; i < kStreams; ++i) {
      addresses[i] = side.addresses[i * kStreamSteps + step];
      if (addresses[i].row != nullptr) addresses[i].row += head * side.heads.row_stride_bytes;
      if (addresses[i].plane != nullptr) addresses[i].plane += head * side.heads.plane_stride_bytes;
    }
    const Element* rows[kStreams];
    load_rows(side.plan, addresses, kStreams, width, decoded_, rows);
    for (int i = 0; i < kStreams; ++i) {
      made_[i] = reinterpret_cast<const std::byte*>(rows[i] == nullptr ? zeros_ : rows[i]);
    }
    return {made_, 0, kElementType<Element>, factors_};
  }

  StreamRows find(const Side& side, std::int64_t head, int step) const {
    const std::byte* const* rows = side.rows + step * kStreams;
    const std::int64_t offset = head * side.heads.row_stride_bytes + side.plan.runs[0].offset_bytes;
    if (is_whole_) return {rows, offset, side.dtype, factors_};
    for (int i = 0; i < kStreams; ++i) {
      const bool exists = rows[i] != nullptr;
      made_[i] = exists ? rows[i] + offset : reinterpret_cast<const std::byte*>(zeros_);
    }
    return {made_, 0, side.dtype, factors_};
  }

  std::int64_t key_width_;
  std::int64_t value_width_;
  std::int64_t widest_;
  const AttentionItem* item_ = nullptr;
  Side keys_;
  Side values_;
  std::uint8_t* present_;
  Element* zeros_;          // [widest]
  Element* decoded_;        // [kStreams, widest]
  const std::byte** made_;  // [kStreams]
  float* factors_;          // [kStreams]
  bool has_holes_ = false;
  bool is_whole_ = false;  // all keys of the chunk are there
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
