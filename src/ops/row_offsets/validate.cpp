// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <limits>

#include "ops/argument.h"
#include "ops/cache_check.h"
#include "quire/ops/row_offsets.h"

namespace quire {
namespace {

// The last prefix sum, and with it every other, fits u32.
void check_total(const ops::Arguments& check, const RowOffsetsArgs& args, std::int64_t batch) {
  const auto* lengths = args.cache_lengths.as<const std::uint32_t>();
  std::int64_t total = args.row_offsets.as<const std::uint32_t>()[batch];
  for (std::int64_t b = 0; b < batch; ++b) total += lengths[b];
  if (total > std::numeric_limits<std::uint32_t>::max()) {
    check.fail("cache_lengths", "of fewer than 2^32 keys together with the new tokens",
               fmt::format("{}", total));
  }
}

}  // namespace

RowOffsetsProblem validate(const RowOffsetsArgs& args) {
  ops::Arguments check("row_offsets");
  check.tensor("cache_lengths", args.cache_lengths).is(DType::u32, {"batch"}).has_dense_rows();
  const std::int64_t batch = args.cache_lengths.shape[0];
  check.tensor("row_offsets", args.row_offsets).is(DType::u32, {batch + 1}).has_dense_rows();
  ops::check_row_offsets(check, args.row_offsets, std::nullopt);
  check.tensor("out", args.out).is(DType::u32, {batch + 1}).has_dense_rows().is_written();
  check.outputs_do_not_overlap();
  if (ops::is_on_host(args.row_offsets)) check_total(check, args, batch);
  return {.device = check.device(), .batch = batch};
}

}  // namespace quire
