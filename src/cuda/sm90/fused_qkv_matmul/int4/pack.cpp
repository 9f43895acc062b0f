// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels.h"

#include "cuda/common/matmul/int4/pack_order.h"
#include "cuda/common/runtime/device_facts.h"
#include "cuda/common/runtime/device_scope.h"
#include "cuda/common/runtime/status.h"
#include "cuda/sm90/fused_qkv_matmul/int4/pack_kernel.h"

namespace quire::cuda::sm90::fused_qkv_matmul {
namespace {

constexpr std::int64_t kPermAlignment = 64;

std::int64_t perm_offset(const Weight& form) {
  return (order_of(form).bytes() + kPermAlignment - 1) / kPermAlignment * kPermAlignment;
}

}  // namespace

std::string refuse_packing(const Weight& weight) {
  const bool has_groups = weight.format >= WeightFormat::int4 && weight.format <= WeightFormat::awq;
  if (!has_groups) return "weights of format " + std::string(name(weight.format)) + " stay plain";
  return refuse_unless_sm90(weight.data.device);
}

Weight packed_form(const Weight& weight) {
  Weight form;
  form.format = weight.format;
  form.group_size = weight.group_size;
  form.packing = WeightPacking::fragments_64;
  form.packed = {.rows = weight.rows(),
                 .columns = weight.columns(),
                 .dtype = DType::u4,
                 .scale_dtype = weight.scale->dtype,
                 .has_zeros = weight.zeros.has_value()};
  return form;
}

std::int64_t packed_bytes(const Weight& form, bool has_perm) {
  if (!has_perm) return order_of(form).bytes();
  return perm_offset(form) + bytes_for(DType::i32, form.packed.columns);
}

Weight pack_weight(const Weight& weight, std::byte* storage, const Context& context) {
  const DeviceScope scope(weight.data.device);
  const auto stream = static_cast<cudaStream_t>(context.stream);
  Weight packed = packed_form(weight);
  launch_pack(make_source(weight), order_of(packed), storage, stream);
  const Device device = weight.data.device;
  packed.data = TensorView::contiguous(storage, DType::u8,
                                       {packed_bytes(packed, weight.perm.has_value())}, device);
  if (weight.perm.has_value()) {
    std::byte* perm = storage + perm_offset(packed);
    const std::int64_t bytes = bytes_for(DType::i32, packed.packed.columns);
    check(cudaMemcpyAsync(perm, weight.perm->data, static_cast<std::size_t>(bytes),
                          cudaMemcpyDeviceToDevice, stream),
          "cudaMemcpyAsync");
    packed.perm = TensorView::contiguous(perm, DType::i32, {packed.packed.columns}, device);
  }
  return packed;
}

}  // namespace quire::cuda::sm90::fused_qkv_matmul
