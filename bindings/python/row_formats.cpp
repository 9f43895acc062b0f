// SPDX-License-Identifier: Apache-2.0
// RowPart and RowFormat: values that compare, hash, copy and pickle.
#include <nanobind/operators.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "dtype.h"
#include "module.h"
#include "quire/row_format.h"

namespace nb = nanobind;

namespace quire::python {
namespace {

constexpr const char* kPart = "RowPart";
constexpr const char* kFormat = "RowFormat";

constexpr std::pair<std::string_view, ScaleSource> kScaleSources[] = {
    {"none", ScaleSource::none},
    {"in_row", ScaleSource::in_row},
    {"plane", ScaleSource::plane},
};

ScaleSource scale_source_argument(nb::handle object) {
  constexpr std::string_view kExpected = "'none', 'in_row' or 'plane'";
  const Place place{kPart, "scale_source"};
  const std::string name = text(object, place, kExpected);
  for (const auto& [known, source] : kScaleSources) {
    if (known == name) return source;
  }
  refuse(ErrorCode::invalid_value, place, kExpected, object);
}

std::string scale_source_name(ScaleSource source) {
  for (const auto& [known, value] : kScaleSources) {
    if (value == source) return std::string(known);
  }
  return "";
}

// A size of a row: 32 bits, and never less than `lowest`.
std::int32_t size_argument(nb::handle object, const char* op, const char* name,
                           std::int32_t lowest) {
  return static_cast<std::int32_t>(
      whole_number(object, {op, name}, {lowest, std::numeric_limits<std::int32_t>::max()}));
}

RowPart make_part(nb::handle dtype, nb::handle width, nb::handle offset_bytes,
                  nb::handle scale_source, nb::handle granularity, nb::handle scale_offset_bytes,
                  nb::handle scale_dtype) {
  const ScaleSource source = scale_source_argument(scale_source);
  return {
      .dtype = dtype_argument(dtype, {kPart, "dtype"}),
      .width = size_argument(width, kPart, "width", 1),
      .offset_bytes = size_argument(offset_bytes, kPart, "offset_bytes", 0),
      .scale_source = source,
      .granularity =
          size_argument(granularity, kPart, "granularity", source == ScaleSource::none ? 0 : 1),
      .scale_offset_bytes = size_argument(scale_offset_bytes, kPart, "scale_offset_bytes", 0),
      .scale_dtype = dtype_argument(scale_dtype, {kPart, "scale_dtype"}),
  };
}

nb::tuple part_state(const RowPart& part) {
  return nb::make_tuple(std::string(name(part.dtype)), part.width, part.offset_bytes,
                        scale_source_name(part.scale_source), part.granularity,
                        part.scale_offset_bytes, std::string(name(part.scale_dtype)));
}

RowPart part_from_state(nb::handle object) {
  const nb::tuple state = state_of(object, kPart, 7);
  return make_part(state[0], state[1], state[2], state[3], state[4], state[5], state[6]);
}

void bind_row_part(nb::module_& module) {
  nb::class_<RowPart>(module, kPart, "One part of a cache row: columns of one dtype.")
      .def(
          "__init__",
          [](RowPart* self, nb::handle dtype, nb::handle width, nb::handle offset_bytes,
             nb::handle scale_source, nb::handle granularity, nb::handle scale_offset_bytes,
             nb::handle scale_dtype) {
            new (self) RowPart(make_part(dtype, width, offset_bytes, scale_source, granularity,
                                         scale_offset_bytes, scale_dtype));
          },
          nb::arg("dtype").none(), nb::arg("width").none(), nb::arg("offset_bytes").none() = 0,
          nb::kw_only(), nb::arg("scale_source").none() = "none", nb::arg("granularity").none() = 0,
          nb::arg("scale_offset_bytes").none() = 0, nb::arg("scale_dtype").none() = "f32")
      .def_prop_ro("dtype", [](const RowPart& part) { return std::string(name(part.dtype)); })
      .def_ro("width", &RowPart::width)
      .def_ro("offset_bytes", &RowPart::offset_bytes)
      .def_prop_ro("scale_source",
                   [](const RowPart& part) { return scale_source_name(part.scale_source); })
      .def_ro("granularity", &RowPart::granularity)
      .def_ro("scale_offset_bytes", &RowPart::scale_offset_bytes)
      .def_prop_ro("scale_dtype",
                   [](const RowPart& part) { return std::string(name(part.scale_dtype)); })
      .def(nb::self == nb::self)
      .def("__hash__", [](const RowPart& part) { return nb::hash(part_state(part)); })
      .def("__getstate__", part_state)
      .def(
          "__setstate__",
          [](RowPart& self, nb::handle state) { new (&self) RowPart(part_from_state(state)); },
          nb::arg("state").none());
}

RowFormat make_row_format(nb::handle parts, nb::handle row_bytes) {
  PyObject* items = PySequence_List(parts.ptr());
  if (items == nullptr) {
    PyErr_Clear();
    refuse(ErrorCode::invalid_type, {kFormat, "parts"}, "a sequence of quire.RowPart", parts);
  }
  const auto list = nb::steal<nb::list>(items);
  const std::size_t count = nb::len(list);
  if (count < 1 || count > RowFormat::kMaxParts) {
    throw Error(ErrorCode::invalid_value, kFormat, "parts",
                "1 to " + std::to_string(RowFormat::kMaxParts) + " parts", std::to_string(count));
  }
  RowFormat format;
  for (const nb::handle item : list) {
    RowPart& part = format.parts[static_cast<std::size_t>(format.num_parts)];
    if (!nb::try_cast(item, part)) {
      refuse(ErrorCode::invalid_type, {kFormat, "parts[" + std::to_string(format.num_parts) + "]"},
             "a quire.RowPart", item);
    }
    ++format.num_parts;
  }
  format.row_bytes = size_argument(row_bytes, kFormat, "row_bytes", 1);
  std::string reason = why_not(format);
  if (!reason.empty()) {
    throw Error(
        ErrorCode::invalid_value, kFormat, "parts",
        "apart from each other inside a row of " + std::to_string(format.row_bytes) + " bytes",
        std::move(reason));
  }
  return format;
}

std::vector<RowPart> parts_of(const RowFormat& format) {
  return {format.parts.begin(), format.parts.begin() + format.num_parts};
}

nb::tuple format_state(const RowFormat& format) {
  return nb::make_tuple(nb::tuple(nb::cast(parts_of(format))), format.row_bytes);
}

RowFormat format_from_state(nb::handle object) {
  const nb::tuple state = state_of(object, kFormat, 2);
  return make_row_format(state[0], state[1]);
}

std::int32_t columns_argument(nb::handle object, const char* name) {
  return size_argument(object, kFormat, name, 1);
}

DType format_dtype(nb::handle object, const char* name) {
  return dtype_argument(object, {kFormat, name});
}

void bind_named_formats(nb::class_<RowFormat>& format) {
  format
      .def_static(
          "uniform",
          [](nb::handle dtype, nb::handle width) {
            return RowFormat::uniform(format_dtype(dtype, "dtype"),
                                      columns_argument(width, "width"));
          },
          nb::arg("dtype").none(), nb::arg("width").none(),
          "`width` columns of one dtype, no scales.")
      .def_static(
          "scaled",
          [](nb::handle dtype, nb::handle width, nb::handle granularity, nb::handle scale_dtype) {
            return RowFormat::scaled(format_dtype(dtype, "dtype"), columns_argument(width, "width"),
                                     columns_argument(granularity, "granularity"),
                                     format_dtype(scale_dtype, "scale_dtype"));
          },
          nb::arg("dtype").none(), nb::arg("width").none(), nb::arg("granularity").none(),
          nb::arg("scale_dtype").none() = "f32",
          "One scale for `granularity` columns, in the cache's scales tensor.")
      .def_static(
          "mla_fp8_token",
          [](nb::handle latent, nb::handle rope, nb::handle rope_dtype) {
            return RowFormat::mla_fp8_token(columns_argument(latent, "latent"),
                                            columns_argument(rope, "rope"),
                                            format_dtype(rope_dtype, "rope_dtype"));
          },
          nb::arg("latent").none() = 512, nb::arg("rope").none() = 64,
          nb::arg("rope_dtype").none() = "bf16",
          "fp8 latent, then rope; one scale per token in the scales tensor (640 B).")
      .def_static(
          "mla_fp8_block",
          [](nb::handle latent, nb::handle rope, nb::handle block, nb::handle rope_dtype) {
            return RowFormat::mla_fp8_block(
                columns_argument(latent, "latent"), columns_argument(rope, "rope"),
                columns_argument(block, "block"), format_dtype(rope_dtype, "rope_dtype"));
          },
          nb::arg("latent").none() = 512, nb::arg("rope").none() = 64,
          nb::arg("block").none() = 128, nb::arg("rope_dtype").none() = "bf16",
          "fp8 latent, its f32 scales, then unscaled rope, all in the row (656 B).")
      .def_static(
          "mla_fp8_e8m0",
          [](nb::handle latent, nb::handle rope, nb::handle block, nb::handle rope_dtype) {
            return RowFormat::mla_fp8_e8m0(
                columns_argument(latent, "latent"), columns_argument(rope, "rope"),
                columns_argument(block, "block"), format_dtype(rope_dtype, "rope_dtype"));
          },
          nb::arg("latent").none() = 448, nb::arg("rope").none() = 64, nb::arg("block").none() = 64,
          nb::arg("rope_dtype").none() = "bf16",
          "fp8 latent, then unscaled rope; powers of two as scales in the scales tensor (576 B).");
}

void bind_int4_format(nb::class_<RowFormat>& format) {
  format.def_static(
      "int4",
      [](nb::handle width, nb::handle group, nb::handle scale_dtype, nb::handle has_zeros) {
        return RowFormat::int4(columns_argument(width, "width"), columns_argument(group, "group"),
                               format_dtype(scale_dtype, "scale_dtype"),
                               flag(has_zeros, {kFormat, "has_zeros"}));
      },
      nb::arg("width").none(), nb::arg("group").none() = 32, nb::arg("scale_dtype").none() = "f16",
      nb::arg("has_zeros").none() = false,
      "Codes of 4 bits, then a scale per `group` columns (32 or 64) in the row: i4, or u4 with "
      "a zero behind each scale. `blocks` are uint8.");
}

void bind_row_format(nb::module_& module) {
  nb::class_<RowFormat> format(module, kFormat,
                               "What one cache row looks like in bytes: parts, dtypes, scales.");
  format
      .def(
          "__init__",
          [](RowFormat* self, nb::handle parts, nb::handle row_bytes) {
            new (self) RowFormat(make_row_format(parts, row_bytes));
          },
          nb::arg("parts").none(), nb::arg("row_bytes").none())
      .def_prop_ro("parts", parts_of)
      .def_ro("row_bytes", &RowFormat::row_bytes)
      .def_prop_ro("width", &RowFormat::width)
      .def("__str__", &RowFormat::describe)
      .def("__repr__",
           [](const RowFormat& format) { return "<quire.RowFormat " + format.describe() + ">"; })
      .def(nb::self == nb::self)
      .def("__hash__", [](const RowFormat& format) { return nb::hash(format_state(format)); })
      .def("__getstate__", format_state)
      .def(
          "__setstate__",
          [](RowFormat& self, nb::handle state) {
            new (&self) RowFormat(format_from_state(state));
          },
          nb::arg("state").none());
  bind_named_formats(format);
  bind_int4_format(format);
}

}  // namespace

void bind_row_formats(nb::module_& module) {
  bind_row_part(module);
  bind_row_format(module);
}

}  // namespace quire::python
