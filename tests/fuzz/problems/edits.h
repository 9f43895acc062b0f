// SPDX-License-Identifier: Apache-2.0
// Numbers that a case's own random stream never holds: NaN, infinities, zeros, the largest and the smallest, and whole
// tensors far from 1. An edit names its place by the problem, not by the layout, so that a problem and its
// twins are changed alike and the oracle says where a NaN has to arrive and where it must not.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fuzz/problems/draw.h"
#include "tools/case/built.h"
#include "tools/case/cache_spec.h"

namespace quire::test {

// One element of a plain tensor, in row-major order, or all of them.
struct TensorEdit {
  std::string tensor;
  std::int64_t element = -1;  // -1: all are multiplied by the value
  double value = 0.0;
};

// One number of a cache's row, or all numbers of its keys or values.
struct RowEdit {
  std::string cache;  // "cache", "extra"
  tools::RowPlace place{};
  std::int32_t column = -1;  // -1: all rows of the side are multiplied by the value
  double value = 0.0;
};

struct Edits {
  std::vector<TensorEdit> tensors{};
  std::vector<RowEdit> rows{};

  bool empty() const { return tensors.empty() && rows.empty(); }
};

// For a problem built from the case `object`.
Edits draw_edits(Draw& draw, const nlohmann::json& object, const tools::Built& built);
void apply(const Edits& edits, const nlohmann::json& object, const tools::Built& built);

std::string describe(const Edits& edits);

}  // namespace quire::test
