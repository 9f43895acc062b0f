// SPDX-License-Identifier: Apache-2.0
#include "packed_weight.h"

#include <algorithm>
#include <memory>

#include "call_context.h"
#include "failure.h"
#include "quire/pack_weight.h"
#include "reader.h"

namespace quire::c {
namespace {

constexpr const char* kPack = "pack_weight";
constexpr const char* kView = "packed_view";

template <typename T> T& target(const Reader& in, const char* argument, T* given) {
  if (given == nullptr) in.fail(argument, "where the result goes", "NULL");
  return *given;
}

// What a form says, without addresses.
Weight form_of(const Reader& in, const quire_packed_form* given) {
  const auto from = in.structure<quire_packed_form>("form", given, sizeof(quire_packed_form));
  Weight form;
  form.format = in.weight_format("form.format", from.format);
  form.packing = in.weight_packing("form.packing", from.packing);
  form.group_size = from.group_size;
  form.packed = {.rows = from.rows,
                 .columns = from.columns,
                 .dtype = in.dtype("form.dtype", from.dtype),
                 .scale_dtype = in.dtype("form.scale_dtype", from.scale_dtype),
                 .scale_group = from.scale_group,
                 .has_zeros = in.flag("form.has_zeros", from.has_zeros)};
  if (in.flag("form.has_perm", from.has_perm)) form.perm = TensorView{};
  return form;
}

void write_form(const Weight& view, quire_packed_form* out) {
  const Reader in("packed_weight_form");
  // Not more than the caller's struct has room for.
  const auto asked = in.structure<quire_packed_form>("form", out, sizeof(std::size_t));
  const quire_packed_form form{
      .struct_size = asked.struct_size,
      .format = number_of(view.format),
      .packing = number_of(view.packing),
      .group_size = view.group_size,
      .rows = view.packed.rows,
      .columns = view.packed.columns,
      .dtype = number_of(view.packed.dtype),
      .scale_dtype = number_of(view.packed.scale_dtype),
      .scale_group = view.packed.scale_group,
      .has_zeros = view.packed.has_zeros ? 1 : 0,
      .has_perm = view.perm.has_value() ? 1 : 0,
  };
  std::memcpy(out, &form, std::min(asked.struct_size, sizeof(form)));
}

}  // namespace
}  // namespace quire::c

using quire::c::guarded;
using quire::c::Reader;

quire_status quire_packed_bytes(const quire_weight* weight, const quire_context* context,
                                int64_t* bytes) {
  return guarded(quire::c::kPack, [&] {
    const Reader in(quire::c::kPack);
    std::int64_t& result = quire::c::target(in, "bytes", bytes);
    const quire::c::CallContext call(in, context);
    result = quire::packed_bytes(in.weight(weight), call.value());
  });
}

quire_status quire_pack_weight(const quire_weight* weight, const DLTensor* storage,
                               const quire_context* context, quire_packed_weight** packed) {
  return guarded(quire::c::kPack, [&] {
    const Reader in(quire::c::kPack);
    quire_packed_weight*& result = quire::c::target(in, "packed", packed);
    const quire::c::CallContext call(in, context);
    auto made = std::make_unique<quire_packed_weight>();
    made->view = quire::pack_weight(in.weight(weight), in.tensor("storage", storage), call.value());
    result = made.release();
  });
}

quire_status quire_packed_weight_form(const quire_packed_weight* packed, quire_packed_form* form) {
  return guarded("packed_weight_form", [&] {
    quire::c::write_form(quire::c::target(Reader("packed_weight_form"), "packed", packed).view,
                         form);
  });
}

quire_status quire_packed_view(const quire_packed_form* form, const DLTensor* storage,
                               const quire_context* context, quire_packed_weight** packed) {
  return guarded(quire::c::kView, [&] {
    const Reader in(quire::c::kView);
    quire_packed_weight*& result = quire::c::target(in, "packed", packed);
    const quire::c::CallContext call(in, context);
    auto made = std::make_unique<quire_packed_weight>();
    made->view = quire::packed_view(quire::c::form_of(in, form), in.tensor("storage", storage),
                                    call.value());
    result = made.release();
  });
}

void quire_packed_weight_free(quire_packed_weight* packed) {
  delete packed;
}
