// SPDX-License-Identifier: Apache-2.0
#include "quire/pack_weight.h"

#include <fmt/format.h>

#include "cpu/fused_qkv_matmul/pack_weight.h"
#include "cpu/fused_qkv_matmul/packed_layout.h"
#include "cuda/kernels.h"
#include "ops/argument.h"
#include "ops/dispatch.h"
#include "ops/fused_qkv_matmul/weight_check.h"
#include "quire/error.h"

namespace quire {
namespace {

using ops::Arguments;

constexpr std::uintptr_t kStorageAlignment = 64;

void check_plain(Arguments& check, const Weight& weight) {
  if (weight.packing != WeightPacking::none) {
    check.fail("weight", "a plain weight", fmt::format("one packed as {}", name(weight.packing)));
  }
  if (weight.data.rank != 2) check.fail("weight", "a matrix", weight.data.describe());
  ops::check_weight(check, weight, weight.rows(), weight.columns());
}

bool is_on_cpu(const Weight& weight) {
  return weight.data.device.kind == DeviceKind::cpu;
}

// Kernels of a CPU look up (code - zero), or multiply it as a byte: right for zero points that codes of 4 bits have,
// 0 to 15, or one more as GPTQ stores them. Zeros of the other formats have no room for more.
void check_zeros(const Arguments& check, const Weight& weight) {
  constexpr double kMost = 16.0;
  if (weight.format != WeightFormat::int4 || !weight.zeros.has_value() || !is_on_cpu(weight))
    return;
  const TensorView& zeros = *weight.zeros;
  for (std::int64_t n = 0; n < zeros.shape[0]; ++n) {
    for (std::int64_t g = 0; g < zeros.shape[1]; ++g) {
      const double zero = zeros.load({n, g});
      if (zero <= kMost) continue;
      check.fail("weight.zeros", fmt::format("of at most {}", kMost),
                 fmt::format("{} for row {}, group {}", zero, n, g));
    }
  }
}

[[noreturn]] void refuse(std::string refusals) {
  throw Error(ErrorCode::unsupported, "pack_weight", "weight", "one that a kernel reads packed",
              std::move(refusals));
}

// Empty, or why the kernels of a folder are not to be served. fused_qkv_matmul and linear have the same.
std::string refuse_kernels(const std::string& folder, const Context& context) {
  for (const char* op : {"/fused_qkv_matmul", "/linear"}) {
    if ((folder + op).starts_with(context.kernel)) return "";
  }
  return fmt::format("context.kernel is '{}'", context.kernel);
}

// The target whose kernel would serve the weight.
cpu::Target target_for(const Context& context) {
  std::string refusals;
  for (const cpu::Target target : cpu::compiled_targets()) {
    const std::string kernels = fmt::format("cpu/{}", cpu::name(target));
    std::string reason = refuse_kernels(kernels, context);
    if (reason.empty()) reason = cpu::why_not(target);
    if (reason.empty()) return target;
    refusals += fmt::format("{}{} refuses: {}", refusals.empty() ? "" : "; ", kernels, reason);
  }
  refuse(std::move(refusals));
}

void check_hopper(const Weight& weight, const Context& context) {
  const std::string kernels = "cuda/sm90/int4";
  std::string reason = refuse_kernels(kernels, context);
  if (reason.empty()) reason = cuda::sm90::fused_qkv_matmul::refuse_packing(weight);
  if (!reason.empty()) refuse(fmt::format("{} refuses: {}", kernels, reason));
}

// The weight as it will be, but for its data and perm; throws where no kernel reads it packed.
Weight form_of(const Weight& weight, const Context& context) {
  if (is_on_cpu(weight)) return cpu::packed_form(weight, target_for(context));
  check_hopper(weight, context);
  return cuda::sm90::fused_qkv_matmul::packed_form(weight);
}

std::int64_t bytes_of(const Weight& form, const Weight& weight) {
  const bool has_perm = weight.perm.has_value();
  return is_on_cpu(weight) ? cpu::packed_bytes(form, has_perm)
                           : cuda::sm90::fused_qkv_matmul::packed_bytes(form, has_perm);
}

void check_storage(const Arguments& check, const TensorView& storage, std::int64_t bytes) {
  if (storage.shape[0] < bytes) {
    check.fail("storage", fmt::format("u8 of at least {} bytes", bytes), storage.describe());
  }
  const auto address = reinterpret_cast<std::uintptr_t>(storage.data);
  if (address % kStorageAlignment != 0) {
    check.fail("storage", fmt::format("on a border of {} bytes", kStorageAlignment),
               fmt::format("an address {} past one", address % kStorageAlignment));
  }
}

// Some kernel for weights on that device reads the order.
void check_packing(const Arguments& check, const Weight& weight, Device device,
                   const Context& context) {
  const std::string given = fmt::format("one packed as {}", name(weight.packing));
  if (device.kind != DeviceKind::cpu) {
    if (weight.packing == WeightPacking::fragments_64) return;
    check.fail("weight", "packed as fragments_64, as on a GPU", given);
  }
  Weight plain;
  plain.format = weight.format;
  plain.data.dtype = weight.packed.dtype;
  std::string known;
  for (const cpu::Target target : cpu::compiled_targets()) {
    const std::string kernels = fmt::format("cpu/{}", cpu::name(target));
    if (!refuse_kernels(kernels, context).empty() || !cpu::why_not(target).empty()) continue;
    const WeightPacking packing = cpu::packing_for(plain, target);
    if (weight.packing == packing) return;
    known += fmt::format("{}{} (cpu/{})", known.empty() ? "" : ", ", name(packing), name(target));
  }
  check.fail("weight", fmt::format("packed as a kernel of this machine reads it: {}", known),
             given);
}

}  // namespace

WeightPacking packing_for(const Weight& weight, const Context& context) {
  Arguments check("pack_weight");
  check_plain(check, weight);
  return form_of(weight, context).packing;
}

std::int64_t packed_bytes(const Weight& weight, const Context& context) {
  Arguments check("pack_weight");
  check_plain(check, weight);
  return bytes_of(form_of(weight, context), weight);
}

Weight pack_weight(const Weight& weight, const TensorView& storage, const Context& context) {
  ops::check_context("pack_weight", context);
  Arguments check("pack_weight");
  check_plain(check, weight);
  const std::int64_t bytes = bytes_of(form_of(weight, context), weight);
  check.tensor("storage", storage).is(DType::u8, {"bytes"}).has_dense_rows().is_written();
  check_storage(check, storage, bytes);
  check.outputs_do_not_overlap();
  check_zeros(check, weight);
  if (!is_on_cpu(weight)) {
    return cuda::sm90::fused_qkv_matmul::pack_weight(weight, storage.as<std::byte>(), context);
  }
  const cpu::FloatEnvironment environment;
  return cpu::pack_weight(weight, storage.as<std::byte>(), context, target_for(context));
}

Weight packed_view(const Weight& weight, const TensorView& storage, const Context& context) {
  constexpr const char* kOp = "packed_view";
  ops::check_context(kOp, context);
  Arguments check(kOp);
  check.tensor("storage", storage).is(DType::u8, {"bytes"}).has_dense_rows();
  check_packing(check, weight, storage.device, context);
  const std::int64_t bytes = ops::packed_size(check, weight);
  check_storage(check, storage, bytes);

  Weight view = weight;
  view.data = TensorView::contiguous(storage.data, DType::u8, {bytes}, storage.device);
  if (weight.perm.has_value()) {
    const std::int64_t columns = weight.packed.columns;
    // A GPU's storage ends with it, a CPU's with the rest of its last line.
    const std::int64_t offset = storage.device.kind == DeviceKind::cpu
                                    ? cpu::packed_layout(weight, true).perm_offset
                                    : bytes - bytes_for(DType::i32, columns);
    view.perm = TensorView::contiguous(storage.as<std::byte>() + offset, DType::i32, {columns},
                                       storage.device);
  }
  ops::check_weight(check, view, weight.packed.rows, weight.packed.columns);
  return view;
}

}  // namespace quire
