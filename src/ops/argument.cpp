// SPDX-License-Identifier: Apache-2.0
#include "ops/argument.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ops/finite.h"
#include "ops/memory_span.h"

namespace quire::ops {
namespace {

std::string join(std::span<const DType> dtypes) {
  std::string text;
  for (std::size_t i = 0; i < dtypes.size(); ++i) {
    if (i > 0) text += i + 1 == dtypes.size() ? " or " : ", ";
    text += name(dtypes[i]);
  }
  return text;
}

std::string describe(DType dtype, std::initializer_list<Extent> shape) {
  std::string text(name(dtype));
  const char* separator = "[";
  for (const Extent& extent : shape) {
    text += separator;
    text += extent.name != nullptr ? std::string(extent.name) : std::to_string(extent.size);
    separator = ", ";
  }
  return text + "]";
}

std::string describe_strides(const TensorView& view) {
  return fmt::format("strides [{}]",
                     fmt::join(view.strides.begin(), view.strides.begin() + view.rank, ", "));
}

bool has_negative(const TensorView& view) {
  std::int64_t signs = 0;
  for (int dim = 0; dim < view.rank; ++dim) signs |= view.shape[dim] | view.strides[dim];
  return signs < 0;
}

// Tensors of most ops; more of them make the list grow.
constexpr std::size_t kUsualTensors = 20;

}  // namespace

std::string ArgumentName::text() const {
  return owner == nullptr ? field : std::string(owner) + "." + field;
}

const TensorArgument& TensorArgument::is(std::span<const DType> dtypes,
                                         std::initializer_list<Extent> shape) const {
  if (view_.rank < 0 || view_.rank > kMaxRank) {
    owner_.fail(name_, fmt::format("of rank {}", shape.size()), fmt::format("rank {}", view_.rank));
  }
  if (std::ranges::find(dtypes, view_.dtype) == dtypes.end()) {
    owner_.fail_type(name_, join(dtypes), view_.describe());
  }
  if (!matches(shape)) fail(describe(view_.dtype, shape));
  owner_.remember(name_, view_, check_memory());
  return *this;
}

bool TensorArgument::matches(std::initializer_list<Extent> shape) const {
  if (static_cast<std::size_t>(view_.rank) != shape.size()) return false;
  return std::equal(shape.begin(), shape.end(), view_.shape.begin(),
                    [](const Extent& extent, std::int64_t size) {
                      return extent.name != nullptr || extent.size == size;
                    });
}

std::int64_t TensorArgument::check_memory() const {
  if (has_negative(view_)) {
    if (std::ranges::any_of(view_.dims(), [](std::int64_t size) { return size < 0; })) {
      fail("without negative sizes");
    }
    owner_.fail(name_, "without negative strides", describe_strides(view_));
  }
  const std::optional<std::int64_t> span = span_bytes(view_);
  if (!span.has_value()) fail("at most 2^60 bytes");
  if (*span > 0 && view_.data == nullptr) {
    owner_.fail(name_, "memory", view_.describe() + " with null data");
  }
  const auto alignment = static_cast<std::uintptr_t>(std::max(bits(view_.dtype) / 8, 1));
  if ((reinterpret_cast<std::uintptr_t>(view_.data) & (alignment - 1)) != 0) {
    owner_.fail(name_, fmt::format("aligned to {} bytes", alignment),
                fmt::format("{}", view_.data));
  }
  return *span;
}

const TensorArgument& TensorArgument::has_dense_rows() const {
  if (!view_.has_dense_rows()) {
    owner_.fail(name_, "dense in its last dimension (stride 1)", describe_strides(view_));
  }
  return *this;
}

const TensorArgument& TensorArgument::has_full_rows() const {
  for (int dim = 1; dim < view_.rank; ++dim) {
    if (view_.shape[dim] < 1) fail("at least 1 in every size after the first");
  }
  return *this;
}

const TensorArgument& TensorArgument::is_written() const {
  const bool is_empty = view_.numel() == 0;  // no two elements in one place
  for (int dim = 0; dim < view_.rank && !is_empty; ++dim) {
    if (view_.shape[dim] > 1 && view_.strides[dim] == 0) {
      owner_.fail(name_, "an output without strides of 0", describe_strides(view_));
    }
  }
  if (surely_overlaps_itself(view_)) {
    owner_.fail(name_, "an output whose elements do not share memory", describe_strides(view_));
  }
  owner_.seen_.back().is_written = true;
  return *this;
}

const TensorArgument& TensorArgument::is_finite() const {
  if (!is_on_host(view_)) return *this;
  if (const auto bad = find_not_finite(view_)) {
    owner_.fail(name_, "finite everywhere", fmt::format("{} at {}", bad->value, bad->index));
  }
  return *this;
}

void TensorArgument::fail(const std::string& expected) const {
  owner_.fail(name_, expected, view_.describe());
}

void Arguments::remember(ArgumentName name, const TensorView& view, std::int64_t span) {
  if (seen_.empty()) {
    seen_.reserve(kUsualTensors);
  } else if (view.device != device()) {
    fail_type(name, fmt::format("on {} like '{}'", to_string(device()), seen_.front().name.text()),
              "a tensor on " + to_string(view.device));
  }
  seen_.emplace_back(name, view, span);
}

void Arguments::is_finite(ArgumentName name, double value) const {
  if (!std::isfinite(value)) fail(name, "finite", fmt::format("{}", value));
}

void Arguments::is_positive(ArgumentName name, double value) const {
  if (!std::isfinite(value) || value <= 0.0) {
    fail(name, "positive and finite", fmt::format("{}", value));
  }
}

void Arguments::is_at_least(ArgumentName name, std::int64_t value, std::int64_t lowest) const {
  if (value < lowest) fail(name, fmt::format("at least {}", lowest), std::to_string(value));
}

void Arguments::is_index(ArgumentName name, std::int64_t value, std::int64_t size) const {
  if (value < 0 || value >= size)
    fail(name, fmt::format("in [0, {})", size), std::to_string(value));
}

void Arguments::outputs_do_not_overlap(std::initializer_list<Pair> may_be_same) const {
  const auto is_allowed = [&](const Seen& output, const Seen& other) {
    return is_same_view(*output.view, *other.view) &&
           std::ranges::any_of(may_be_same, [&](const Pair& pair) {
             return pair.first == output.name.text() && pair.second == other.name.text();
           });
  };
  for (const Seen& output : seen_) {
    if (!output.is_written) continue;
    for (const Seen& other : seen_) {
      if (&other == &output || !output.may_meet(other)) continue;
      if (is_allowed(output, other) || is_allowed(other, output)) continue;
      if (surely_overlaps(*output.view, *other.view)) {
        fail(output.name, fmt::format("apart from '{}' in memory", other.name.text()),
             "overlapping tensors");
      }
    }
  }
}

void Arguments::fail(ArgumentName name, std::string expected, std::string actual) const {
  throw Error(ErrorCode::invalid_value, std::string(op_), name.text(), std::move(expected),
              std::move(actual));
}

void Arguments::fail_type(ArgumentName name, std::string expected, std::string actual) const {
  throw Error(ErrorCode::invalid_type, std::string(op_), name.text(), std::move(expected),
              std::move(actual));
}

}  // namespace quire::ops
