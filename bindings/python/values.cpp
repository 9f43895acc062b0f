// SPDX-License-Identifier: Apache-2.0
// The other plain values that cross the border as classes: Context, Plan, Refusal.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>
#include <vector>

#include "module.h"

namespace nb = nanobind;

namespace quire::python {
namespace {

// quire.using makes them, and is what their errors name.
Place option(const char* name) {
  return {"using", name};
}

Context make_context(nb::handle num_threads, nb::handle kernel, nb::handle stream,
                     nb::handle workspace, nb::handle workspace_bytes,
                     nb::handle overlaps_previous) {
  const auto threads = whole_number(num_threads, option("num_threads"), {0, kMaxThreads});
  return {
      .num_threads = static_cast<int>(threads),
      .stream = reinterpret_cast<void*>(address(stream, option("stream"))),
      .overlaps_previous = flag(overlaps_previous, option("overlaps_previous")),
      .workspace = reinterpret_cast<void*>(address(workspace, option("workspace"))),
      .workspace_bytes = whole_number(workspace_bytes, option("workspace"), {.lowest = 0}),
      .kernel = text(kernel, option("kernel")),
  };
}

void bind_context(nb::module_& module) {
  nb::class_<Context>(module, "Context", "How an op runs; results never depend on it.")
      .def(
          "__init__",
          [](Context* self, nb::handle num_threads, nb::handle kernel, nb::handle stream,
             nb::handle workspace, nb::handle workspace_bytes, nb::handle overlaps_previous) {
            new (self) Context(make_context(num_threads, kernel, stream, workspace, workspace_bytes,
                                            overlaps_previous));
          },
          nb::arg("num_threads").none() = 0, nb::arg("kernel").none() = "",
          nb::arg("stream").none() = 0, nb::arg("workspace").none() = 0,
          nb::arg("workspace_bytes").none() = 0, nb::arg("overlaps_previous").none() = false)
      .def_ro("num_threads", &Context::num_threads)
      .def_ro("kernel", &Context::kernel)
      .def_prop_ro(
          "stream",
          [](const Context& context) { return reinterpret_cast<std::uintptr_t>(context.stream); })
      .def_ro("workspace_bytes", &Context::workspace_bytes)
      .def_ro("overlaps_previous", &Context::overlaps_previous);
}

template <typename T> T part_of(nb::handle object, const char* op) {
  T part;
  if (nb::try_cast(object, part)) return part;
  refuse(ErrorCode::invalid_value, {op, "state"}, "what its own __getstate__ gave", object);
}

nb::tuple plan_state(const Plan& plan) {
  return nb::make_tuple(plan.op, plan.kernel, plan.workspace_bytes, plan.choices, plan.refusals,
                        plan.nearest);
}

Plan plan_from_state(nb::handle object) {
  const nb::tuple state = state_of(object, "Plan", 6);
  return {
      .op = part_of<std::string>(state[0], "Plan"),
      .kernel = part_of<std::string>(state[1], "Plan"),
      .workspace_bytes = part_of<std::int64_t>(state[2], "Plan"),
      .choices = part_of<std::vector<std::pair<std::string, std::string>>>(state[3], "Plan"),
      .refusals = part_of<std::vector<Refusal>>(state[4], "Plan"),
      .nearest = part_of<std::string>(state[5], "Plan"),
  };
}

Refusal refusal_from_state(nb::handle object) {
  const nb::tuple state = state_of(object, "Refusal", 2);
  return {.kernel = part_of<std::string>(state[0], "Refusal"),
          .reason = part_of<std::string>(state[1], "Refusal")};
}

void bind_plan(nb::module_& module) {
  nb::class_<Refusal>(module, "Refusal", "A kernel that did not take the problem, and why.")
      .def_ro("kernel", &Refusal::kernel)
      .def_ro("reason", &Refusal::reason)
      .def("__repr__",
           [](const Refusal& refusal) { return refusal.kernel + ": " + refusal.reason; })
      .def("__getstate__",
           [](const Refusal& refusal) { return nb::make_tuple(refusal.kernel, refusal.reason); })
      .def(
          "__setstate__",
          [](Refusal& self, nb::handle state) { new (&self) Refusal(refusal_from_state(state)); },
          nb::arg("state").none());
  nb::class_<Plan>(module, "Plan",
                   "Which kernel serves a call, or why none does. True if one does.")
      .def_ro("op", &Plan::op)
      .def_ro("kernel", &Plan::kernel)
      .def_ro("workspace_bytes", &Plan::workspace_bytes)
      .def_prop_ro("choices",
                   [](const Plan& plan) {
                     nb::dict choices;
                     for (const auto& [key, value] : plan.choices) choices[key.c_str()] = value;
                     return choices;
                   })
      .def_ro("refusals", &Plan::refusals)
      .def_ro("nearest", &Plan::nearest)
      .def_prop_ro("supported", &Plan::supported)
      .def("__bool__", &Plan::supported)
      .def("__str__", &Plan::describe)
      .def("__repr__", [](const Plan& plan) { return "<quire.Plan " + plan.describe() + ">"; })
      .def("__getstate__", plan_state)
      .def(
          "__setstate__",
          [](Plan& self, nb::handle state) { new (&self) Plan(plan_from_state(state)); },
          nb::arg("state").none());
}

}  // namespace

void bind_values(nb::module_& module) {
  bind_context(module);
  bind_plan(module);
}

}  // namespace quire::python
