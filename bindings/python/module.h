// SPDX-License-Identifier: Apache-2.0
// The parts of the extension module, one per file.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/unique_ptr.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "arguments.h"
#include "quire/context.h"
#include "quire/plan.h"
#include "quire/prepared.h"

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
void bind_page_manager(nanobind::module_& module);
void bind_prepared(nanobind::module_& module);
void bind_projection_ops(nanobind::module_& module);
void bind_row_formats(nanobind::module_& module);

// The error as Python's parameters are called: the cache of an indexer's op is `index_cache` there.
Error in_python(const Error& error, const nanobind::dict& arguments);

// The arguments with changes of some of them, all of which must be there already.
nanobind::dict with_changes(std::string_view op, const nanobind::dict& arguments,
                            nanobind::handle changed);

// body(args) without the GIL; errors, of the reader's and of the op's, as Python calls things.
template <typename Args, typename Body>
auto with_args(std::string_view op, Args (*read)(ArgumentReader&), const Context& context,
               const nanobind::dict& arguments, const Body& body) {
  try {
    ArgumentReader reader(op, arguments, context.stream);
    const Args args = read(reader);
    const nanobind::gil_scoped_release release;
    return body(args);
  } catch (const Error& error) {
    throw in_python(error, arguments);
  }
}

// Scratch of a GPU op from the framework of the caller's tensors, which orders its memory by stream.
class FrameworkScratch {
 public:
  // None: nothing is to be allocated.
  explicit FrameworkScratch(nanobind::handle like) : like_(like) {}

  // The context with an allocator that lives as long as this.
  Context fill(const Context& context) {
    Context whole = context;
    whole.workspace_allocator = {.allocate = allocate, .user = this};
    return whole;
  }
  bool is_wanted() const { return !like_.is_none(); }

 private:
  static void* allocate(void* user, std::int64_t bytes);

  nanobind::handle like_;
  nanobind::object memory_{};
};

// An op's arguments with the kernel that was chosen for them.
class PreparedCall {
 public:
  PreparedCall() = default;
  PreparedCall(const PreparedCall&) = delete;
  PreparedCall& operator=(const PreparedCall&) = delete;
  virtual ~PreparedCall() = default;

  virtual const Plan& plan() const = 0;
  // `changed`: a dict of arguments in place of those that were prepared, or None.
  virtual void run(const Context& context, nanobind::handle changed) const = 0;
};

// The op's own run(), found by its arguments.
template <typename Problem, typename Args>
void launch_prepared(const Prepared<Problem>& prepared, const Args& args, const Context& context) {
  run(prepared, args, context);
}

template <typename Args> class PreparedCallOf final : public PreparedCall {
 public:
  using Problem = decltype(validate(std::declval<const Args&>()));

  PreparedCallOf(std::string_view op, Args (*read)(ArgumentReader&), const Context& context,
                 const nanobind::dict& arguments)
      : op_(op),
        read_(read),
        arguments_(arguments),
        reader_(op, arguments, context.stream),
        args_(read(reader_)),
        prepared_(prepare(validate(args_), context)) {}

  const Plan& plan() const override { return prepared_.plan(); }

  void run(const Context& context, nanobind::handle changed) const override {
    try {
      if (changed.is_none()) return launch(args_, context);
      const nanobind::dict arguments = with_changes(op_, arguments_, changed);
      ArgumentReader reader(op_, arguments, context.stream, &reader_);
      launch(read_(reader), context);
    } catch (const Error& error) {
      throw in_python(error, arguments_);
    }
  }

 private:
  void launch(const Args& args, const Context& context) const {
    const nanobind::gil_scoped_release release;
    launch_prepared(prepared_, args, context);
  }

  std::string_view op_;
  Args (*read_)(ArgumentReader&);
  nanobind::dict arguments_;
  ArgumentReader reader_;
  Args args_;
  Prepared<Problem> prepared_;
};

// module.<name>(context, like, arguments) runs an op, with scratch from the framework of `like` if that is not None;
// module.plan_<name>(context, arguments) answers which kernel would run; module.prepare_<name>(context, arguments)
// makes a PreparedCall. All of them read the same arguments with the same reader, so that they cannot disagree about a
// call.
template <typename Args>
void bind_op(nanobind::module_& module, const char* name, Args (*read)(ArgumentReader&),
             void (*run)(const Args&, const Context&)) {
  const std::string_view op = name;  // a literal
  module.def(
      name,
      [op, read, run](const Context& context, nanobind::handle like,
                      const nanobind::dict& arguments) {
        FrameworkScratch scratch(like);
        with_args<Args>(op, read, context, arguments, [&](const Args& args) {
          scratch.is_wanted() ? run(args, scratch.fill(context)) : run(args, context);
        });
      },
      nanobind::arg("context"), nanobind::arg("like").none(), nanobind::arg("arguments"));
  module.def(("plan_" + std::string(op)).c_str(),
             [op, read](const Context& context, const nanobind::dict& arguments) {
               return with_args<Args>(op, read, context, arguments,
                                      [&](const Args& args) { return supports(args, context); });
             });
  module.def(("prepare_" + std::string(op)).c_str(),
             [op, read](const Context& context, const nanobind::dict& arguments) {
               try {
                 return std::unique_ptr<PreparedCall>(
                     std::make_unique<PreparedCallOf<Args>>(op, read, context, arguments));
               } catch (const Error& error) {
                 throw in_python(error, arguments);
               }
             });
}

}  // namespace quire::python
