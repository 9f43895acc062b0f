// SPDX-License-Identifier: Apache-2.0
// A projection problem in host memory, of any format, with what its tensors own. Two of the same
// Problem hold the same bytes.
#pragma once

#include <algorithm>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "core/block_format.h"
#include "quire/ops/fused_qkv_matmul.h"
#include "support/block_factors.h"
#include "support/cache_builder.h"
#include "support/host_tensor.h"

namespace quire::test {

struct FusedQkvSpec {
  std::string name;
  std::vector<std::uint32_t> new_tokens{3, 0, 38};
  std::int64_t hidden = 256;
  std::int64_t q_dim = 72;
  std::int64_t heads = 2;
  RowFormat row = RowFormat::uniform(DType::bf16, 24);
  DType x = DType::bf16;
  DType out = DType::bf16;
  WeightFormat format = WeightFormat::dense;
  DType weight = DType::bf16;
  std::int64_t scale_rows = 1;     // fp8: 1, 0 = all, -1 = blocks
  std::int64_t input_columns = 1;  // fp8 x: scales per token, 0: one for the tensor
  bool has_zeros = false;
  bool has_perm = false;
  Activations activations = Activations::exact;
  bool is_mla = false;
  bool is_ragged = false;  // rows of x, W and out with gaps, at odd addresses
  bool heads_first = false;
  bool own_scale_pages = false;
  std::optional<double> static_scale{};
  std::int64_t group_size = 32;  // int4, gptq, awq
};

inline std::ostream& operator<<(std::ostream& out, const FusedQkvSpec& problem) {
  return out << problem.name;
}

// [rows, columns] with a gap after each row and an address that no vector likes.
inline TensorView with_gaps(HostTensor& storage, DType dtype, std::int64_t rows,
                            std::int64_t columns, std::uint64_t seed, double amplitude) {
  storage = HostTensor::random(dtype, {rows * (columns + 2) + 2}, seed, amplitude);
  TensorView view = TensorView::contiguous(storage.view().as<std::byte>() + bytes_for(dtype, 2),
                                           dtype, {rows, columns});
  view.strides[0] = columns + 2;
  return view;
}

class FusedQkvSubject {
 public:
  explicit FusedQkvSubject(const FusedQkvSpec& problem)
      : problem_(problem), cache_(cache_options(problem)), out_(problem.out, {0}) {
    columns_ = problem.q_dim +
               (problem.is_mla ? 1 : 2) * problem.heads * std::int64_t{problem.row.width()};
    const std::int64_t tokens = cache_.num_tokens();
    const double amplitude = is_fp8(problem.x) ? 60.0 : 1.0;
    args.x = tensor(x_, problem.x, tokens, problem.hidden, 11, amplitude);
    args.row_offsets = cache_.row_offsets();
    args.cache = cache_.view();
    args.layer = 1;
    args.activations = problem.activations;
    args.out = tensor(out_, problem.out, tokens, problem.q_dim, 12, 1.0);
    bias_ = HostTensor::random(problem.is_ragged ? problem.out : DType::f32, {columns_}, 13);
    args.bias = bias_.view();
    if (is_fp8(problem.x)) {
      const std::int64_t blocks = problem.input_columns;
      input_scale_ = HostTensor::random(
          DType::f32, {blocks == 0 ? 1 : tokens, std::max<std::int64_t>(blocks, 1)}, 14, 0.05);
      args.input_scale = input_scale_.view();
    }
    make_weight();
    cache_.unassign(2, 1);
  }

  FusedQkvArgs args;
  const TestCache& cache() const { return cache_; }

 private:
  static CacheOptions cache_options(const FusedQkvSpec& problem) {
    return {.cache_lengths = {13, 4, 7},
            .new_tokens = problem.new_tokens,
            .row_format = problem.row,
            .page_size = 16,
            .num_kv_heads = problem.heads,
            .is_mla = problem.is_mla,
            .heads_first = problem.heads_first,
            .static_scale = problem.static_scale,
            .own_scale_pages = problem.own_scale_pages};
  }

  TensorView tensor(HostTensor& storage, DType dtype, std::int64_t rows, std::int64_t columns,
                    std::uint64_t seed, double amplitude) const {
    if (problem_.is_ragged) return with_gaps(storage, dtype, rows, columns, seed, amplitude);
    storage = HostTensor::random(dtype, {rows, columns}, seed, amplitude);
    return storage.view();
  }

  void make_weight() {
    Weight& weight = args.weight;
    weight.format = problem_.format;
    const std::int64_t k = problem_.hidden;
    switch (problem_.format) {
      case WeightFormat::dense:
        weight.data = tensor(data_, problem_.weight, columns_, k, 21, 0.1);
        break;
      case WeightFormat::fp8:
        weight.data = tensor(data_, problem_.weight, columns_, k, 21, 100.0);
        scale_ = HostTensor::random(
            DType::f32,
            problem_.scale_rows < 0
                ? std::vector<std::int64_t>{(columns_ + 127) / 128, (k + 127) / 128}
                : std::vector<std::int64_t>{problem_.scale_rows == 0 ? columns_ : 1, 1},
            22, 0.01);
        break;
      case WeightFormat::int4:
        weight.data = random_bytes(DType::u4, {columns_, k});
        add_groups({columns_, k / problem_.group_size}, DType::u8,
                   {columns_, k / problem_.group_size});
        break;
      case WeightFormat::awq:
        weight.data = random_bytes(DType::i32, {k, columns_ / 8});
        add_groups({k / problem_.group_size, columns_}, DType::i32,
                   {k / problem_.group_size, columns_ / 8});
        break;
      case WeightFormat::gptq:
      case WeightFormat::gptq_v2:
        weight.data = random_bytes(DType::i32, {k / 8, columns_});
        add_groups({k / problem_.group_size, columns_}, DType::i32,
                   {k / problem_.group_size, columns_ / 8});
        break;
      default:
        make_blocks();
    }
    if (scale_.view().numel() > 0) weight.scale = scale_.view();
    if (problem_.has_perm) {
      perm_ = HostTensor(DType::i32, {k});
      for (std::int64_t i = 0; i < k; ++i) perm_.view().store({i}, static_cast<double>(i * 7 % k));
      weight.perm = perm_.view();
    }
  }

  void add_groups(std::vector<std::int64_t> scale_shape, DType zeros_dtype,
                  std::vector<std::int64_t> zeros_shape) {
    args.weight.group_size = problem_.group_size;
    scale_ = HostTensor::random(DType::f16, std::move(scale_shape), 22, 0.02);
    if (!problem_.has_zeros) return;
    zeros_ = HostTensor(zeros_dtype, std::move(zeros_shape));
    fill(zeros_, 255);  // int4's are bytes, and any byte
    args.weight.zeros = zeros_.view();
  }

  // GGUF blocks of random codes with f16 factors that are finite.
  void make_blocks() {
    const BlockFormat& block = block_format(problem_.format);
    const std::int64_t blocks = columns_ * problem_.hidden / block.columns;
    args.weight.data =
        random_bytes(DType::u8, {columns_, problem_.hidden / block.columns * block.bytes});
    std::uint64_t state = 3;
    for (std::int64_t i = 0; i < blocks; ++i) {
      store_block_factors(block, 1e-3, state, data_.bytes().data() + i * block.bytes);
    }
  }

  TensorView random_bytes(DType dtype, std::vector<std::int64_t> shape) {
    data_ = HostTensor(dtype, std::move(shape));
    fill(data_, 255);
    return data_.view();
  }

  static void fill(HostTensor& tensor, int largest) {
    std::uint64_t state = 17;
    for (std::byte& byte : tensor.bytes()) {
      const double value = 0.5 * (next_uniform(state) + 1.0) * (largest + 1);
      byte = static_cast<std::byte>(std::min(static_cast<int>(value), largest));
    }
  }

  FusedQkvSpec problem_;
  std::int64_t columns_ = 0;
  TestCache cache_;
  HostTensor x_, out_, bias_, input_scale_, data_, scale_{DType::f32, {0}}, zeros_, perm_;
};

}  // namespace quire::test
