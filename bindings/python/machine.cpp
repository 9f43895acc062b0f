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
      [](int num_threads, const std::string& target) {
        CpuCeiling ceiling;
        {
          const nb::gil_scoped_release release;
          ceiling = measure_cpu_ceiling(num_threads, target);
        }
        return nb::make_tuple(ceiling.target, ceiling.num_threads, ceiling.read_gbs,
                              ceiling.f32_gflops, ceiling.bf16_gflops, ceiling.int8_gops);
      },
      nb::arg("num_threads"), nb::arg("target"));
}

}  // namespace quire::python
