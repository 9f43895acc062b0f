// SPDX-License-Identifier: Apache-2.0
// quire._quire: the ops as functions of keyword arguments. The public face is the Python package
// around it.
#include "module.h"

NB_MODULE(_quire, module) {
  // Values that live in a global of the user's when the interpreter ends are no leak of ours.
  nanobind::set_leak_warnings(false);
  module.attr("__version__") = QUIRE_VERSION;
  module.attr("backends") = QUIRE_BACKENDS;
  quire::python::bind_errors(module);
  quire::python::bind_row_formats(module);
  quire::python::bind_values(module);
  quire::python::bind_elements(module);
  quire::python::bind_cache_ops(module);
  quire::python::bind_dense_ops(module);
  quire::python::bind_index_ops(module);
  quire::python::bind_attention_ops(module);
  quire::python::bind_machine(module);
  quire::python::bind_packed_weight(module);
  quire::python::bind_page_manager(module);
  quire::python::bind_prepared(module);
  quire::python::bind_projection_ops(module);
}
