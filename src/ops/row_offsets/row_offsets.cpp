// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <limits>

#include "cpu/row_offsets/row_offsets.h"
#include "cuda/kernels.h"
#include "ops/argument.h"
#include "ops/cache_check.h"
#include "ops/dispatch.h"
#include "quire/ops/row_offsets.h"
#include "reference/row_offsets.h"

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

const ops::Dispatch<RowOffsetsProblem, RowOffsetsArgs>& dispatch() {
  static const ops::Dispatch<RowOffsetsProblem, RowOffsetsArgs> table(
      "row_offsets",
      {
          .cuda = cuda::row_offsets_kernels(),
          .run_on_cpu = [](const RowOffsetsArgs& args, const Context&,
                           cpu::Target) { cpu::row_offsets(args); },
          .run_reference = [](const RowOffsetsArgs& args) { reference::row_offsets(args); },
      });
  return table;
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

Prepared<RowOffsetsProblem> prepare(const RowOffsetsProblem& problem, const Context& context) {
  return dispatch().prepare("row_offsets", problem, context);
}

Plan plan(const RowOffsetsProblem& problem, const Context& context) {
  return prepare(problem, context).plan();
}

Plan supports(const RowOffsetsArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void run(const Prepared<RowOffsetsProblem>& prepared, const RowOffsetsArgs& args,
         const Context& context) {
  dispatch().run_checked(prepared, validate(args), args, context);
}

void row_offsets(const RowOffsetsArgs& args, const Context& context) {
  dispatch().run(prepare(validate(args), context), args, context);
}

}  // namespace quire
