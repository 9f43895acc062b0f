// SPDX-License-Identifier: Apache-2.0
// Structs of the C interface as the values that the ops take. Only what the border itself can get wrong is checked here:
// NULL, sizes of structs, numbers that are no enumerator. The ops check the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "quire/c/cache.h"
#include "quire/c/dlpack.h"
#include "quire/c/latent.h"
#include "quire/c/mask.h"
#include "quire/c/rows.h"
#include "quire/c/weight.h"
#include "quire/error.h"
#include "quire/mask.h"
#include "quire/ops/mla_prefill.h"
#include "quire/ops/quantize_fp8.h"
#include "quire/ops/rms_norm.h"
#include "quire/paged_kv_cache.h"
#include "quire/weight.h"

namespace quire::c {

// How much of a struct must be there.
struct StructBytes {
  std::size_t known;     // sizeof
  std::size_t required;  // up to the first field that may be cut off
};

class Reader {
 public:
  explicit Reader(std::string_view op) : op_(op) {}

  std::string_view op() const { return op_; }

  // The caller's struct, with zeros where it is shorter than ours. `required` is the offset of the first optional field.
  template <typename T>
  T structure(std::string_view argument, const void* given, std::size_t required) const {
    static_assert(std::is_standard_layout_v<T> && sizeof(T) % sizeof(std::size_t) == 0);
    T whole{};
    const std::size_t size =
        checked_size(argument, given, {.known = sizeof(T), .required = required});
    std::memcpy(static_cast<void*>(&whole), given, size);
    return whole;
  }

  // `field`: of the argument, "blocks" of "cache". Names are put together for errors alone.
  TensorView tensor(std::string_view argument, const DLTensor* given,
                    std::string_view field = {}) const;
  std::optional<TensorView> optional_tensor(std::string_view argument, const DLTensor* given,
                                            std::string_view field = {}) const;
  // Page ids, lengths and offsets: u32, or i32 with the same bits.
  TensorView indices(std::string_view argument, const DLTensor* given,
                     std::string_view field = {}) const;
  std::optional<TensorView> optional_indices(std::string_view argument, const DLTensor* given,
                                             std::string_view field = {}) const;
  PagedKVCache cache(std::string_view argument, const quire_cache* given) const;
  Mask mask(const quire_mask* given) const;
  Weight weight(const quire_weight* given) const;
  MlaPrefillChunks chunks(const quire_mla_prefill_chunks* given) const;

  bool flag(std::string_view argument, std::int32_t value) const;
  DType dtype(std::string_view argument, std::int32_t value) const;
  WeightFormat weight_format(std::string_view argument, std::int32_t value) const;
  WeightPacking weight_packing(std::string_view argument, std::int32_t value) const;
  KvSide side(std::int32_t value) const;
  ScaleRounding scale_rounding(std::int32_t value, ScaleRounding otherwise) const;
  void is_zero(std::string_view argument, std::int64_t value) const;

  [[noreturn]] void fail(std::string_view argument, std::string expected, std::string actual) const;

 private:
  // Bytes of `given` that are ours to read.
  std::size_t checked_size(std::string_view argument, const void* given, StructBytes bytes) const;
  Mask read_mask(const std::string& argument, const quire_mask* given, std::int32_t& budget) const;
  RowFormat row_format(std::string_view name_of_cache, const quire_row_format* given) const;
  TensorView blocks_as(std::string_view name_of_cache, TensorView blocks,
                       std::int32_t number) const;

  std::string_view op_;
};

// A number, or the default where it is 0.
inline double given_or(double value, double otherwise) {
  return value == 0.0 ? otherwise : value;
}
inline std::int64_t given_or(std::int64_t value, std::int64_t otherwise) {
  return value == 0 ? otherwise : value;
}

// The enumerators of the C interface, which are never renumbered.
std::int32_t number_of(DType dtype);
std::int32_t number_of(WeightFormat format);
std::int32_t number_of(WeightPacking packing);

// `view` as a DLTensor whose shape and strides are the caller's memory.
void write_tensor(const TensorView& view, DLDevice device, DLTensor& out);

}  // namespace quire::c
