// SPDX-License-Identifier: Apache-2.0
#include "quire/pack_weight.h"

#include <fmt/format.h>

#include "cpu/fused_qkv_matmul/pack_weight.h"
#include "ops/argument.h"
#include "ops/candidate.h"
#include "ops/fused_qkv_matmul/weight_check.h"

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

// The target whose kernel would serve the weight.
cpu::Target target_for(const Weight& weight, const Context& context) {
  std::string refusals;
  if (weight.data.device.kind == DeviceKind::cpu) {
    for (const cpu::Target target : cpu::compiled_targets()) {
      const std::string kernel = fmt::format("cpu/{}/fused_qkv_matmul", cpu::name(target));
      const std::string reason = kernel.starts_with(context.kernel)
                                     ? cpu::why_not(target)
                                     : fmt::format("context.kernel is '{}'", context.kernel);
      if (reason.empty()) return target;
      refusals += fmt::format("{}{} refuses: {}", refusals.empty() ? "" : "; ", kernel, reason);
    }
  } else {
    refusals = "a weight on " + to_string(weight.data.device);
  }
  throw Error(ErrorCode::unsupported, "pack_weight", "weight", "one that a kernel reads packed",
              std::move(refusals));
}

}  // namespace

WeightPacking packing_for(const Weight& weight, const Context& context) {
  Arguments check("pack_weight");
  check_plain(check, weight);
  return cpu::packing_for(weight, target_for(weight, context));
}

std::int64_t packed_bytes(const Weight& weight, const Context& context) {
  Arguments check("pack_weight");
  check_plain(check, weight);
  const Weight form = cpu::packed_form(weight, target_for(weight, context));
  return cpu::packed_bytes(form, weight.perm.has_value());
}

Weight pack_weight(const Weight& weight, const TensorView& storage, const Context& context) {
  ops::check_context("pack_weight", context);
  Arguments check("pack_weight");
  check_plain(check, weight);
  const cpu::Target target = target_for(weight, context);
  const std::int64_t bytes =
      cpu::packed_bytes(cpu::packed_form(weight, target), weight.perm.has_value());
  check.tensor("storage", storage).is(DType::u8, {"bytes"}).has_dense_rows().is_written();
  if (storage.shape[0] < bytes) {
    check.fail("storage", fmt::format("u8 of at least {} bytes", bytes), storage.describe());
  }
  const auto address = reinterpret_cast<std::uintptr_t>(storage.data);
  if (address % kStorageAlignment != 0) {
    check.fail("storage", fmt::format("on a border of {} bytes", kStorageAlignment),
               fmt::format("an address {} past one", address % kStorageAlignment));
  }
  check.outputs_do_not_overlap();
  return cpu::pack_weight(weight, storage.as<std::byte>(), context, target);
}

}  // namespace quire
