// SPDX-License-Identifier: Apache-2.0
#include "quire/c/prepared.h"

#include <algorithm>

#include "op.h"
#include "ops/dispatch.h"

namespace quire::c {
namespace {

const AnyOp* find_op(quire_op number) {
  for (const auto list :
       {attention_ops(), latent_ops(), projection_ops(), row_ops(), sparse_ops()}) {
    for (const NumberedOp& entry : list) {
      if (entry.number == number) return entry.op;
    }
  }
  return nullptr;
}

const AnyOp& op_of(std::string_view function, quire_op number) {
  if (const AnyOp* op = find_op(number)) return *op;
  Reader(function).fail("op", "one of QUIRE_OP_*", std::to_string(number));
}

void write_text(const std::string& from, char* text, std::size_t text_bytes) {
  if (text == nullptr || text_bytes == 0) return;
  const std::size_t length = std::min(from.size(), text_bytes - 1);
  from.copy(text, length);
  text[length] = '\0';
}

void check_supported(const Plan& plan) {
  if (!plan.supported()) ops::throw_unsupported(plan);
}

}  // namespace
}  // namespace quire::c

using quire::c::guarded;
using quire::c::Reader;

const char* quire_op_name(quire_op op) {
  const quire::c::AnyOp* found = quire::c::find_op(op);
  return found == nullptr ? nullptr : found->name();
}

quire_status quire_supports(quire_op op, const void* args, const quire_context* context, char* text,
                            size_t text_bytes) {
  return guarded("supports", [&] {
    const quire::Plan plan = quire::c::op_of("supports", op).supports(args, context);
    quire::c::write_text(plan.describe(), text, text_bytes);
    quire::c::check_supported(plan);
  });
}

quire_status quire_workspace_bytes(quire_op op, const void* args, const quire_context* context,
                                   int64_t* bytes) {
  return guarded("workspace_bytes", [&] {
    const quire::c::AnyOp& found = quire::c::op_of("workspace_bytes", op);
    if (bytes == nullptr) Reader(found.name()).fail("bytes", "where the result goes", "NULL");
    const quire::Plan plan = found.supports(args, context);
    quire::c::check_supported(plan);
    *bytes = plan.workspace_bytes;
  });
}

quire_status quire_prepare(quire_op op, const void* args, const quire_context* context,
                           quire_prepared** prepared) {
  return guarded("prepare", [&] {
    const quire::c::AnyOp& found = quire::c::op_of("prepare", op);
    if (prepared == nullptr) Reader(found.name()).fail("prepared", "where the result goes", "NULL");
    std::unique_ptr<quire_prepared> made = found.prepare(args, context);
    quire::c::check_supported(made->plan());
    made->description = made->plan().describe();
    *prepared = made.release();
  });
}

quire_status quire_run(const quire_prepared* prepared, const void* args,
                       const quire_context* context) {
  return guarded(prepared == nullptr ? "run" : prepared->op(), [&] {
    if (prepared == nullptr) Reader("run").fail("prepared", "what quire_prepare made", "NULL");
    prepared->run(args, context);
  });
}

int64_t quire_prepared_workspace_bytes(const quire_prepared* prepared) {
  return prepared == nullptr ? -1 : prepared->plan().workspace_bytes;
}

const char* quire_prepared_describe(const quire_prepared* prepared) {
  return prepared == nullptr ? "" : prepared->description.c_str();
}

void quire_prepared_free(quire_prepared* prepared) {
  delete prepared;
}
