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
template <typename Args> class PackedForms {
 public:
  explicit PackedForms(const Args& args) : args_(args) {}

  const Args& for_kernel(const Context& context) {
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
    Args args;
  };

  Args args_;
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

template <typename Args>
Calls packed_calls(const Args& there, void (*op)(const Args&, const Context&)) {
  const auto args = std::make_shared<Args>(there);
  Calls calls{
      .supports = [args](const Context& context) { return supports(*args, context); },
      .run = [args, op](const Context& context) { op(*args, context); },
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

template <typename Args>
void pack_before_running(Built& built, const Args& args, void (*op)(const Args&, const Context&)) {
  const auto forms = std::make_shared<PackedForms<Args>>(args);
  built.supports = [forms](const Context& context) {
    return supports(forms->for_kernel(context), context);
  };
  built.run = [forms, op](const Context& context) { op(forms->for_kernel(context), context); };
  built.relocated = [args, op](const Relocation& move) {
    return packed_calls(relocate(args, move), op);
  };
}

template void pack_before_running(Built&, const FusedQkvArgs&,
                                  void (*)(const FusedQkvArgs&, const Context&));
template void pack_before_running(Built&, const LinearArgs&,
                                  void (*)(const LinearArgs&, const Context&));

}  // namespace quire::tools
