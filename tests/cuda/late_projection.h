// SPDX-License-Identifier: Apache-2.0
// A projection on GPU 0 whose arguments, all but the weight, are written by what stands before it in the stream:
// until then they hold other values, which are valid and give other results.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "cuda/common/runtime/device_values.h"
#include "fused_qkv_subject.h"
#include "late_copy.h"
#include "packed_twin.h"

namespace quire::test {

// One tensor of the GPU, and copies of its bytes.
struct LateTensor {
  std::string name;
  TensorView tensor{};
  cuda::DeviceBuffer right{};
  cuda::DeviceBuffer before{};

  LateTensor(std::string name, const TensorView& tensor, const std::vector<std::byte>& other)
      : name(std::move(name)), tensor(tensor) {
    right = on_gpu(cuda::download(tensor, nullptr));
    before = on_gpu(other);
  }
  ByteCopy copy() const {
    return {.to = tensor.as<std::byte>(), .from = right.data(), .bytes = right.bytes()};
  }
  void hold(const cuda::DeviceBuffer& bytes) const {
    cuda::check(cudaMemcpy(tensor.data, bytes.data(), static_cast<std::size_t>(bytes.bytes()),
                           cudaMemcpyDeviceToDevice),
                "cudaMemcpy");
    cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

 private:
  static cuda::DeviceBuffer on_gpu(const std::vector<std::byte>& bytes) {
    cuda::DeviceBuffer buffer(static_cast<std::int64_t>(bytes.size()));
    cuda::check(cudaMemcpy(buffer.data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice),
                "cudaMemcpy");
    return buffer;
  }
};

// Half of every number; tables and lengths with their first row last.
inline std::vector<std::byte> other_values(const TensorView& tensor) {
  std::vector<std::byte> bytes = cuda::download(tensor, nullptr);
  if (tensor.dtype == DType::u32) {
    std::rotate(bytes.begin(), bytes.begin() + bytes_for(tensor.dtype, tensor.strides[0]),
                bytes.end());
    return bytes;
  }
  const auto count = static_cast<std::int64_t>(bytes.size()) / bytes_for(tensor.dtype, 1);
  for (std::int64_t i = 0; i < count; ++i) {
    store_element(bytes.data(), tensor.dtype, i, 0.5 * load_element(bytes.data(), tensor.dtype, i));
  }
  return bytes;
}

// Those of the same sequences in the opposite order.
inline std::vector<std::byte> other_offsets(const TensorView& row_offsets) {
  std::vector<std::byte> bytes = cuda::download(row_offsets, nullptr);
  auto* offsets = reinterpret_cast<std::uint32_t*>(bytes.data());
  const std::int64_t last = row_offsets.shape[0] - 1;
  const std::vector<std::uint32_t> right(offsets, offsets + last + 1);
  for (std::int64_t i = 0; i <= last; ++i) {
    offsets[i] = right[static_cast<std::size_t>(last)] - right[static_cast<std::size_t>(last - i)];
  }
  return bytes;
}

class LateProjection {
 public:
  explicit LateProjection(const FusedQkvSpec& spec, bool is_packed = false)
      : subject_(spec), is_static_(spec.static_scale.has_value()) {
    if (is_packed) {
      packed_.emplace(subject_.args);
      args_ = packed_->packed;
    } else {
      args_ = twin_.move(subject_.args);
    }
    plan_ = supports(args_);
    workspace_ = cuda::DeviceBuffer(plan_.workspace_bytes);
    late_.emplace_back("row_offsets", args_.row_offsets, other_offsets(args_.row_offsets));
    add("x", args_.x);
    add("cache_lengths", args_.cache.cache_lengths);
    add("page_table", args_.cache.page_table);
    if (args_.bias.has_value()) add("bias", *args_.bias);
    if (args_.input_scale.has_value()) add("input_scale", *args_.input_scale);
    if (args_.cache.scales_page_table.has_value()) {
      add("scales_page_table", *args_.cache.scales_page_table);
    }
    if (is_static_) add("scales", *args_.cache.scales);
  }

  const FusedQkvArgs& args() const { return args_; }
  const Plan& plan() const { return plan_; }
  const std::vector<LateTensor>& late() const { return late_; }
  std::vector<TensorView> written() const {
    std::vector<TensorView> tensors{args_.out, args_.cache.blocks};
    if (args_.cache.scales.has_value() && !is_static_) tensors.push_back(*args_.cache.scales);
    return tensors;
  }
  void hold_right() const {
    for (const LateTensor& tensor : late_) tensor.hold(tensor.right);
  }
  void hold_before() const {
    for (const LateTensor& tensor : late_) tensor.hold(tensor.before);
  }
  std::vector<ByteCopy> copies() const {
    std::vector<ByteCopy> all;
    for (const LateTensor& tensor : late_) all.push_back(tensor.copy());
    return all;
  }
  void run(cudaStream_t stream, bool overlaps_previous) const {
    Context context;
    context.stream = stream;
    context.overlaps_previous = overlaps_previous;
    context.workspace = workspace_.data();
    context.workspace_bytes = workspace_.bytes();
    fused_qkv_matmul(args_, context);
  }

 private:
  void add(const std::string& name, const TensorView& tensor) {
    late_.emplace_back(name, tensor, other_values(tensor));
  }

  FusedQkvSubject subject_;
  bool is_static_;
  DeviceTwin twin_;
  std::optional<PackedTwin> packed_;
  FusedQkvArgs args_;
  Plan plan_;
  cuda::DeviceBuffer workspace_;
  std::vector<LateTensor> late_;
};

}  // namespace quire::test
