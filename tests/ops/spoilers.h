// SPDX-License-Identifier: Apache-2.0
// Ways in which any tensor of any op can be wrong, with the error that each leads to.
#pragma once

#include "quire/error.h"
#include "quire/tensor_view.h"

namespace quire::test {

struct Spoiler {
  const char* name;
  ErrorCode code;
  void (*spoil)(TensorView& view);
};

inline constexpr Spoiler kSpoilers[] = {
    {"null_data", ErrorCode::invalid_value, [](TensorView& view) { view.data = nullptr; }},
    {"wrong_dtype", ErrorCode::invalid_type,
     [](TensorView& view) {
       view.dtype = view.dtype == DType::i64 ? DType::u32 : DType::i64;  // i64: slots of store
     }},
    {"one_rank_less", ErrorCode::invalid_value, [](TensorView& view) { --view.rank; }},
    {"rank_past_the_maximum", ErrorCode::invalid_value,
     [](TensorView& view) { view.rank = kMaxRank + 1; }},
    {"negative_rank", ErrorCode::invalid_value, [](TensorView& view) { view.rank = -1; }},
    {"negative_size", ErrorCode::invalid_value, [](TensorView& view) { view.shape[0] = -4; }},
    {"negative_stride", ErrorCode::invalid_value,
     [](TensorView& view) { view.strides[0] = -view.strides[0]; }},
    {"size_that_overflows", ErrorCode::invalid_value,
     [](TensorView& view) { view.shape[0] = std::int64_t{1} << 62; }},
    {"memory_not_aligned", ErrorCode::invalid_value,
     [](TensorView& view) {
       // Bytes are aligned everywhere: those are spoiled by having no memory.
       view.data = bits(view.dtype) > 8 ? view.as<std::byte>() + 1 : nullptr;
     }},
    {"stride_that_overflows", ErrorCode::invalid_value,
     [](TensorView& view) {
       view.strides[0] = std::int64_t{1} << 62;
       if (view.shape[0] == 1) view.shape[0] = 2;
     }},
};

}  // namespace quire::test
