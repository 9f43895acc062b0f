// SPDX-License-Identifier: Apache-2.0
// The numbers of a cache's rows, of any row format, and of their scales: row i holds the same ones wherever it stands.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quire/paged_kv_cache.h"
#include "tools/case/random_stream.h"
#include "tools/case/row_address.h"

namespace quire::tools {

// Stored numbers of scaled parts are about this large, so that number × scale is about 1.
double code_amplitude(const RowFormat& format, const RowPart& part);
// As large as the numbers' own spread: powers of two that are close together are all the same.
double scale_spread(DType dtype);

class RowNumbers {
 public:
  RowNumbers(const RowFormat& format, std::uint64_t seed, const std::string& name);

  // `index` counts rows in logical order, whatever the layout.
  void write_row(std::byte* row, std::int64_t index);
  // The same where the row has a page, with its scales in the plane.
  void write(const PagedKVCache& cache, const RowPlace& place, std::int64_t index);

 private:
  void write_scales(std::byte* row, std::size_t part, std::int64_t index);

  RowFormat format_;
  std::vector<RandomStream> numbers_;
  std::vector<RandomStream> scales_;
  std::vector<RandomStream> zeros_;
};

}  // namespace quire::tools
