// SPDX-License-Identifier: Apache-2.0
#include "cpu/fused_qkv_matmul/pack_weight.h"

#include <cstring>

#include "cpu/fused_qkv_matmul/kernels.h"
#include "cpu/fused_qkv_matmul/operands.h"
#include "cpu/runtime/thread_pool.h"
#include "cpu/runtime/work_estimate.h"

namespace quire::cpu {
namespace {

WeightPacking packing_of(bool is_f32, Target target) {
  const MatmulKernels& kernels = matmul_kernels(target);
  return is_f32 ? kernels.packing_f32 : kernels.packing;
}

}  // namespace

WeightPacking packing_for(const Weight& weight, Target target) {
  const bool is_f32 = weight.format == WeightFormat::dense && weight.data.dtype == DType::f32;
  return packing_of(is_f32, target);
}

Weight packed_form(const Weight& weight, Target target) {
  Weight form;
  form.format = weight.format;
  form.group_size = weight.group_size;
  form.packing = packing_for(weight, target);
  form.packed = packed_shape(weight);
  return form;
}

std::int64_t packed_bytes(const Weight& form, bool has_perm) {
  return packed_layout(form, has_perm).bytes;
}

Weight pack_weight(const Weight& weight, std::byte* storage, const Context& context,
                   Target target) {
  Weight packed = packed_form(weight, target);
  const PackedLayout layout = packed_layout(packed, weight.perm.has_value());
  const WeightView from = weight_view(weight);
  const MatmulKernels& kernels = matmul_kernels(target);
  const Workers workers =
      Workers(context.num_threads)
          .for_nanoseconds(nanoseconds_of_bytes(static_cast<double>(layout.bytes)));
  parallel_for(layout.panels, workers,
               [&](std::int64_t panel, int) { kernels.pack_panel(from, layout, panel, storage); });
  packed.data = TensorView::contiguous(storage, DType::u8, {layout.bytes});
  if (weight.perm.has_value()) {
    std::byte* perm = storage + layout.perm_offset;
    std::memcpy(perm, weight.perm->data,
                static_cast<std::size_t>(bytes_for(DType::i32, packed.packed.columns)));
    packed.perm = TensorView::contiguous(perm, DType::i32, {packed.packed.columns});
  }
  return packed;
}

std::string refuse_packing(WeightPacking packing, bool is_f32, Target target) {
  if (packing == WeightPacking::none) return "";
  const WeightPacking known = packing_of(is_f32, target);
  if (packing == known) return "";
  return "the weight is packed as " + std::string(quire::name(packing)) + ", this target reads " +
         std::string(quire::name(known));
}

}  // namespace quire::cpu
