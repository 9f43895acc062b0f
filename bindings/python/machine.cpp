// SPDX-License-Identifier: Apache-2.0
// What the machine can do, measured.
#include <nanobind/stl/string.h>

#include "module.h"
#include "quire/cpu_ceiling.h"

namespace nb = nanobind;

namespace quire::python {

void bind_machine(nb::module_& module) {
  module.def(
      "measure_cpu_ceiling",
      [](nb::handle num_threads, nb::handle target) {
        const auto place = [](const char* name) { return Place{"measure_cpu_ceiling", name}; };
        const auto threads =
            static_cast<int>(whole_number(num_threads, place("num_threads"), {0, kMaxThreads}));
        const std::string wanted = text(target, place("target"));
        CpuCeiling ceiling;
        {
          const nb::gil_scoped_release release;
          ceiling = measure_cpu_ceiling(threads, wanted);
        }
        return nb::make_tuple(ceiling.target, ceiling.num_threads, ceiling.read_gbs,
                              ceiling.f32_gflops, ceiling.bf16_gflops, ceiling.int8_gops);
      },
      nb::arg("num_threads").none(), nb::arg("target").none());
  module.def("num_cores", num_cores);
}

}  // namespace quire::python
