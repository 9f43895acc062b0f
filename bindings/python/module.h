// SPDX-License-Identifier: Apache-2.0
// The parts of the extension module, one per file.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>

#include "arguments.h"
#include "quire/context.h"
#include "quire/plan.h"

namespace quire::python {

void bind_errors(nanobind::module_& module);
void bind_values(nanobind::module_& module);
void bind_elements(nanobind::module_& module);
void bind_attention_ops(nanobind::module_& module);
void bind_cache_ops(nanobind::module_& module);
void bind_dense_ops(nanobind::module_& module);
void bind_index_ops(nanobind::module_& module);
void bind_machine(nanobind::module_& module);
void bind_packed_weight(nanobind::module_& module);
void bind_row_formats(nanobind::module_& module);

// The error as Python's parameters are called: the cache of an indexer's op is `index_cache` there.
Error in_python(const Error& error, const nanobind::kwargs& arguments);

// body(args) without the GIL; errors, of the reader's and of the op's, as Python calls things.
template <typename Args, typename Body>
auto with_args(std::string_view op, Args (*read)(ArgumentReader&), const Context& context,
               const nanobind::kwargs& arguments, const Body& body) {
  try {
    ArgumentReader reader(op, arguments, context.stream);
    const Args args = read(reader);
    const nanobind::gil_scoped_release release;
    return body(args);
  } catch (const Error& error) {
    throw in_python(error, arguments);
  }
}

// module.<name>(context, **arguments) runs an op; module.plan_<name> answers which kernel would
// run. Both read the same arguments with the same reader, so that they cannot disagree about a
// call.
template <typename Args>
void bind_op(nanobind::module_& module, const char* name, Args (*read)(ArgumentReader&),
             void (*run)(const Args&, const Context&)) {
  const std::string_view op = name;  // a literal
  module.def(name, [op, read, run](const Context& context, const nanobind::kwargs& arguments) {
    with_args<Args>(op, read, context, arguments, [&](const Args& args) { run(args, context); });
  });
  module.def(("plan_" + std::string(op)).c_str(),
             [op, read](const Context& context, const nanobind::kwargs& arguments) {
               return with_args<Args>(op, read, context, arguments,
                                      [&](const Args& args) { return supports(args, context); });
             });
}

}  // namespace quire::python
