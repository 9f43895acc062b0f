// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <limits>
#include <map>

#include "cpu/copy_pages/copy_pages.h"
#include "cuda/kernels.h"
#include "ops/cache_check.h"
#include "ops/copy_pages/page_pairs.h"
#include "ops/dispatch.h"
#include "reference/copy_pages.h"

namespace quire {
namespace ops {
namespace {

constexpr std::uint32_t kNoPage = std::numeric_limits<std::uint32_t>::max();

std::uint32_t page_at(const TensorView& pairs, std::int64_t pair, std::int64_t side) {
  return pairs.as<const std::uint32_t>()[pairs.offset({pair, side})];
}

// A pair that is dropped takes no part.
bool is_copied(const TensorView& pairs, std::int64_t pair, std::int64_t num_pages) {
  return page_at(pairs, pair, 0) < num_pages && page_at(pairs, pair, 1) < num_pages;
}

void check_range(const Arguments& check, const TensorView& pairs, std::int64_t num_pages) {
  for (std::int64_t pair = 0; pair < pairs.shape[0]; ++pair) {
    for (std::int64_t side = 0; side < 2; ++side) {
      const std::uint32_t id = page_at(pairs, pair, side);
      if (id <= num_pages || id == kNoPage) continue;
      check.fail(
          "pairs",
          fmt::format("page ids below {}, or {} or 0xFFFFFFFF for no page", num_pages, num_pages),
          fmt::format("{} at [{}, {}]", id, pair, side));
    }
  }
}

}  // namespace

void check_page_pairs(const Arguments& check, const TensorView& pairs, std::int64_t num_pages) {
  check_range(check, pairs, num_pages);
  std::map<std::uint32_t, std::int64_t> pair_of_target;
  for (std::int64_t pair = 0; pair < pairs.shape[0]; ++pair) {
    if (!is_copied(pairs, pair, num_pages)) continue;
    const std::uint32_t target = page_at(pairs, pair, 1);
    const auto [found, is_new] = pair_of_target.emplace(target, pair);
    if (is_new) continue;
    check.fail("pairs", "no page a target twice",
               fmt::format("{} at [{}, 1] and [{}, 1]", target, found->second, pair));
  }
  for (std::int64_t pair = 0; pair < pairs.shape[0]; ++pair) {
    if (!is_copied(pairs, pair, num_pages)) continue;
    const std::uint32_t source = page_at(pairs, pair, 0);
    const auto found = pair_of_target.find(source);
    if (found == pair_of_target.end()) continue;
    check.fail("pairs", "no page both source and target",
               fmt::format("{} at [{}, 0] and [{}, 1]", source, pair, found->second));
  }
}

}  // namespace ops

namespace {

const ops::Dispatch<CopyPagesProblem, CopyPagesArgs>& dispatch() {
  static const ops::Dispatch<CopyPagesProblem, CopyPagesArgs> table(
      "copy_pages",
      {
          .cuda = cuda::copy_pages_kernels(),
          .run_on_cpu = [](const CopyPagesArgs& args, const Context& context,
                           cpu::Target) { cpu::copy_pages(args, context); },
          .run_reference = [](const CopyPagesArgs& args) { reference::copy_pages(args); },
      });
  return table;
}

}  // namespace

CopyPagesProblem validate(const CopyPagesArgs& args) {
  ops::Arguments check("copy_pages");
  const CacheShape cache = ops::check_cache(check, args.cache,
                                            {.sides = ops::CacheSides::all,
                                             .access = ops::CacheAccess::write,
                                             .takes_value_width = true});
  if (args.cache.scales_page_table) {
    check.fail("cache.scales_page_table", "absent: those scales have pages of their own",
               args.cache.scales_page_table->describe());
  }
  check.tensor("pairs", args.pairs).is(DType::u32, {"count", 2}).has_dense_rows();
  if (ops::is_on_host(args.pairs)) ops::check_page_pairs(check, args.pairs, cache.num_pages);
  check.outputs_do_not_overlap();
  return {.device = check.device(), .cache = cache, .count = args.pairs.shape[0]};
}

Prepared<CopyPagesProblem> prepare(const CopyPagesProblem& problem, const Context& context) {
  return dispatch().prepare("copy_pages", problem, context);
}

Plan plan(const CopyPagesProblem& problem, const Context& context) {
  return prepare(problem, context).plan();
}

Plan supports(const CopyPagesArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void run(const Prepared<CopyPagesProblem>& prepared, const CopyPagesArgs& args,
         const Context& context) {
  dispatch().run_checked(prepared, validate(args), args, context);
}

void copy_pages(const CopyPagesArgs& args, const Context& context) {
  dispatch().run(prepare(validate(args), context), args, context);
}

}  // namespace quire
