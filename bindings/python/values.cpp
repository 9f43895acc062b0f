// SPDX-License-Identifier: Apache-2.0
// The plain values that cross the border as classes: RowFormat, Context, Plan.
#include <nanobind/operators.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "dtype.h"
#include "module.h"
#include "quire/row_format.h"

namespace nb = nanobind;

namespace quire::python {
namespace {

constexpr std::pair<std::string_view, ScaleSource> kScaleSources[] = {
    {"none", ScaleSource::none},
    {"in_row", ScaleSource::in_row},
    {"plane", ScaleSource::plane},
};

ScaleSource scale_source_argument(const std::string& text) {
  for (const auto& [known, source] : kScaleSources) {
    if (known == text) return source;
  }
  throw Error(ErrorCode::invalid_value, "RowPart", "scale_source", "'none', 'in_row' or 'plane'",
              "'" + text + "'");
}

std::string scale_source_name(ScaleSource source) {
  for (const auto& [known, value] : kScaleSources) {
    if (value == source) return std::string(known);
  }
  return "";
}

RowFormat make_row_format(const std::vector<RowPart>& parts, std::int32_t row_bytes) {
  if (parts.empty() || parts.size() > RowFormat::kMaxParts) {
    throw Error(ErrorCode::invalid_value, "RowFormat", "parts",
                "1 to " + std::to_string(RowFormat::kMaxParts) + " parts",
                std::to_string(parts.size()));
  }
  RowFormat format;
  std::copy(parts.begin(), parts.end(), format.parts.begin());
  format.num_parts = static_cast<std::int32_t>(parts.size());
  format.row_bytes = row_bytes;
  return format;
}

void bind_row_part(nb::module_& module) {
  nb::class_<RowPart>(module, "RowPart", "One part of a cache row: columns of one dtype.")
      .def(
          "__init__",
          [](RowPart* self, const std::string& dtype, std::int32_t width, std::int32_t offset_bytes,
             const std::string& scale_source, std::int32_t granularity,
             std::int32_t scale_offset_bytes, const std::string& scale_dtype) {
            new (self) RowPart{
                .dtype = dtype_argument(dtype),
                .width = width,
                .offset_bytes = offset_bytes,
                .scale_source = scale_source_argument(scale_source),
                .granularity = granularity,
                .scale_offset_bytes = scale_offset_bytes,
                .scale_dtype = dtype_argument(scale_dtype),
            };
          },
          nb::arg("dtype"), nb::arg("width"), nb::arg("offset_bytes") = 0, nb::kw_only(),
          nb::arg("scale_source") = "none", nb::arg("granularity") = 0,
          nb::arg("scale_offset_bytes") = 0, nb::arg("scale_dtype") = "f32")
      .def_prop_ro("dtype", [](const RowPart& part) { return std::string(name(part.dtype)); })
      .def_ro("width", &RowPart::width)
      .def_ro("offset_bytes", &RowPart::offset_bytes)
      .def_prop_ro("scale_source",
                   [](const RowPart& part) { return scale_source_name(part.scale_source); })
      .def_ro("granularity", &RowPart::granularity)
      .def_ro("scale_offset_bytes", &RowPart::scale_offset_bytes)
      .def_prop_ro("scale_dtype",
                   [](const RowPart& part) { return std::string(name(part.scale_dtype)); })
      .def(nb::self == nb::self);
}

void bind_named_formats(nb::class_<RowFormat>& format) {
  format
      .def_static(
          "uniform",
          [](const std::string& dtype, std::int32_t width) {
            return RowFormat::uniform(dtype_argument(dtype), width);
          },
          nb::arg("dtype"), nb::arg("width"), "`width` columns of one dtype, no scales.")
      .def_static(
          "scaled",
          [](const std::string& dtype, std::int32_t width, std::int32_t granularity,
             const std::string& scale_dtype) {
            return RowFormat::scaled(dtype_argument(dtype), width, granularity,
                                     dtype_argument(scale_dtype));
          },
          nb::arg("dtype"), nb::arg("width"), nb::arg("granularity"),
          nb::arg("scale_dtype") = "f32",
          "One scale for `granularity` columns, in the cache's scales tensor.")
      .def_static(
          "mla_fp8_token",
          [](std::int32_t latent, std::int32_t rope, const std::string& rope_dtype) {
            return RowFormat::mla_fp8_token(latent, rope, dtype_argument(rope_dtype));
          },
          nb::arg("latent") = 512, nb::arg("rope") = 64, nb::arg("rope_dtype") = "bf16",
          "fp8 latent, then rope; one scale per token in the scales tensor (640 B).")
      .def_static(
          "mla_fp8_block",
          [](std::int32_t latent, std::int32_t rope, std::int32_t block,
             const std::string& rope_dtype) {
            return RowFormat::mla_fp8_block(latent, rope, block, dtype_argument(rope_dtype));
          },
          nb::arg("latent") = 512, nb::arg("rope") = 64, nb::arg("block") = 128,
          nb::arg("rope_dtype") = "bf16",
          "fp8 latent, its f32 scales, then unscaled rope, all in the row (656 B).");
}

void bind_row_format(nb::module_& module) {
  nb::class_<RowFormat> format(module, "RowFormat",
                               "What one cache row looks like in bytes: parts, dtypes, scales.");
  format
      .def(
          "__init__",
          [](RowFormat* self, const std::vector<RowPart>& parts, std::int32_t row_bytes) {
            new (self) RowFormat(make_row_format(parts, row_bytes));
          },
          nb::arg("parts"), nb::arg("row_bytes"))
      .def_prop_ro("parts",
                   [](const RowFormat& format) {
                     return std::vector<RowPart>(format.parts.begin(),
                                                 format.parts.begin() + format.num_parts);
                   })
      .def_ro("row_bytes", &RowFormat::row_bytes)
      .def_prop_ro("width", &RowFormat::width)
      .def("__str__", &RowFormat::describe)
      .def("__repr__",
           [](const RowFormat& format) { return "<quire.RowFormat " + format.describe() + ">"; })
      .def(nb::self == nb::self);
  bind_named_formats(format);
}

void bind_context(nb::module_& module) {
  nb::class_<Context>(module, "Context", "How an op runs; results never depend on it.")
      .def(
          "__init__",
          [](Context* self, int num_threads, const std::string& kernel, std::uintptr_t stream,
             std::uintptr_t workspace, std::int64_t workspace_bytes, bool overlaps_previous) {
            new (self) Context{
                .num_threads = num_threads,
                .stream = reinterpret_cast<void*>(stream),
                .overlaps_previous = overlaps_previous,
                .workspace = reinterpret_cast<void*>(workspace),
                .workspace_bytes = workspace_bytes,
                .kernel = kernel,
            };
          },
          nb::arg("num_threads") = 0, nb::arg("kernel") = "", nb::arg("stream") = 0,
          nb::arg("workspace") = 0, nb::arg("workspace_bytes") = 0,
          nb::arg("overlaps_previous") = false)
      .def_ro("num_threads", &Context::num_threads)
      .def_ro("kernel", &Context::kernel)
      .def_prop_ro(
          "stream",
          [](const Context& context) { return reinterpret_cast<std::uintptr_t>(context.stream); })
      .def_ro("workspace_bytes", &Context::workspace_bytes)
      .def_ro("overlaps_previous", &Context::overlaps_previous);
}

void bind_plan(nb::module_& module) {
  nb::class_<Refusal>(module, "Refusal", "A kernel that did not take the problem, and why.")
      .def_ro("kernel", &Refusal::kernel)
      .def_ro("reason", &Refusal::reason)
      .def("__repr__",
           [](const Refusal& refusal) { return refusal.kernel + ": " + refusal.reason; });
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
      .def("__repr__", [](const Plan& plan) { return "<quire.Plan " + plan.describe() + ">"; });
}

}  // namespace

void bind_values(nb::module_& module) {
  bind_row_part(module);
  bind_row_format(module);
  bind_context(module);
  bind_plan(module);
}

}  // namespace quire::python
