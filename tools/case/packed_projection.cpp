// SPDX-License-Identifier: Apache-2.0
#include "tools/case/packed_projection.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "quire/error.h"
#include "quire/pack_weight.h"

namespace quire::tools {
namespace {

constexpr std::uintptr_t kAlignment = 64;

// The packed forms of one weight, by Context::kernel.
class PackedForms {
 public:
  explicit PackedForms(const FusedQkvArgs& args) : args_(args) {}

  const FusedQkvArgs& for_kernel(const Context& context) {
    const auto found = forms_.find(context.kernel);
    if (found != forms_.end()) return found->second.args;
    const std::int64_t bytes = packed_bytes(args_.weight, context);
    Form form{.storage = std::vector<std::byte>(static_cast<std::size_t>(bytes) + kAlignment),
              .args = args_};
    std::byte* start = form.storage.data();
    start += (kAlignment - reinterpret_cast<std::uintptr_t>(start) % kAlignment) % kAlignment;
    form.args.weight =
        pack_weight(args_.weight, TensorView::contiguous(start, DType::u8, {bytes}), context);
    return forms_.emplace(context.kernel, std::move(form)).first->second.args;
  }

 private:
  struct Form {
    std::vector<std::byte> storage;
    FusedQkvArgs args;
  };

  FusedQkvArgs args_;
  std::map<std::string, Form> forms_;
};

// 0 where no kernel of the weight's device reads it packed.
std::int64_t bytes_if_packed(const Weight& weight) {
  try {
    return packed_bytes(weight);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    return 0;
  }
}

Calls packed_calls(const FusedQkvArgs& there) {
  const auto args = std::make_shared<FusedQkvArgs>(there);
  Calls calls{
      .supports = [args](const Context& context) { return supports(*args, context); },
      .run = [args](const Context& context) { fused_qkv_matmul(*args, context); },
      .packed_bytes = bytes_if_packed(there.weight),
  };
  if (calls.packed_bytes == 0) return calls;
  calls.pack = [args, plain = there.weight, bytes = calls.packed_bytes](std::byte* storage,
                                                                        const Context& context) {
    const TensorView view = TensorView::contiguous(storage, DType::u8, {bytes}, plain.data.device);
    args->weight = pack_weight(plain, view, context);
  };
  return calls;
}

}  // namespace

void pack_before_running(Built& built, const FusedQkvArgs& args) {
  const auto forms = std::make_shared<PackedForms>(args);
  built.supports = [forms](const Context& context) {
    return supports(forms->for_kernel(context), context);
  };
  built.run = [forms](const Context& context) {
    fused_qkv_matmul(forms->for_kernel(context), context);
  };
  built.relocated = [args](const Relocation& move) { return packed_calls(relocate(args, move)); };
}

}  // namespace quire::tools
