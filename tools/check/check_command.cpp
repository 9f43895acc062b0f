// SPDX-License-Identifier: Apache-2.0
#include "tools/check/check_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "tools/case/case.h"
#include "tools/check/check_case.h"
#include "tools/device_choice.h"
#include "tools/progress_bar.h"
#include "tools/text_file.h"

namespace quire::tools {
namespace {

// A model case takes the oracle minutes: it runs when it is named in full, or with --all.
bool is_wanted(const Case& candidate, const CheckOptions& options) {
  const bool is_small = candidate.has_tag("tiny") || candidate.has_tag("edge");
  const bool is_named =
      std::find(options.cases.begin(), options.cases.end(), candidate.name) != options.cases.end();
  return options.all || is_small || is_named;
}

struct Choice {
  std::vector<Case> cases;
  std::size_t left_out = 0;  // model cases
};

Choice choose_cases(const CheckOptions& options) {
  std::vector<Case> cases = load_cases(options.folder);
  if (!options.cases.empty()) cases = select_cases(cases, options.cases);
  const std::size_t left_out =
      std::erase_if(cases, [&](const Case& candidate) { return !is_wanted(candidate, options); });
  return {.cases = std::move(cases), .left_out = left_out};
}

void list_cases(const std::vector<Case>& cases) {
  for (const Case& listed : cases) {
    const Peer label = listed.label();
    const std::string peer =
        listed.peer.has_value() ? fmt::format("  {} | {}", label.op, label.shape) : "";
    fmt::print("{:<64} {:<22} {:<6} {:>12.6g} MFLOP {:>12.6g} MB{}\n", listed.name, listed.op,
               fmt::join(listed.tags, ","), listed.problem->flops() / 1e6,
               listed.problem->bytes() / 1e6, peer);
  }
  fmt::print("{} cases\n", cases.size());
}

void print_verdict(const Case& subject, const Verdict& verdict) {
  const char* word = verdict.outcome == Outcome::passed   ? "ok"
                     : verdict.outcome == Outcome::failed ? "FAILED"
                                                          : "skipped";
  fmt::print("{:<7} {:<56} {:<32} max error {:.3g}\n", word, subject.name,
             verdict.kernel.empty() ? "-" : verdict.kernel, verdict.max_error);
  for (const std::string& fault : verdict.faults) fmt::print("          {}\n", fault);
  flush_stdout();
}

}  // namespace

int run_check(const CheckOptions& options) {
  const auto [cases, left_out] = choose_cases(options);
  if (options.list) {
    list_cases(cases);
    return 0;
  }
  require_device(options.device);
  // Unless the caller has said otherwise: an op that reads scratch it has not written must not pass by luck.
  setenv("QUIRE_POISON_SCRATCH", "1", /*overwrite=*/0);
  // Cases are short, and threads are to meet in them.
  setenv("QUIRE_SHARE_SHORT_CALLS", "1", /*overwrite=*/0);
  CheckMode mode{.device = options.device, .repeats = options.repeats};
  mode.context.kernel = options.target;
  const ProgressBar progress(cases.size());
  std::size_t done = 0;
  std::int64_t passed = 0;
  std::int64_t failed = 0;
  for (const Case& subject : cases) {
    progress.show(done++, subject.name);
    const Verdict verdict = check_case(subject, mode);
    progress.clear();
    print_verdict(subject, verdict);
    passed += verdict.outcome == Outcome::passed ? 1 : 0;
    failed += verdict.outcome == Outcome::failed ? 1 : 0;
  }
  const std::int64_t skipped = static_cast<std::int64_t>(cases.size()) - passed - failed;
  if (skipped > 0) fmt::print("{} skipped: no kernel '{}' takes them\n", skipped, options.target);
  if (left_out > 0 && !options.cases.empty()) {
    fmt::print("{} model cases left out: name one in full, or take all with --all\n", left_out);
  }
  fmt::print("{} passed, {} failed\n", passed, failed);
  return passed > 0 && failed == 0 ? 0 : 1;
}

}  // namespace quire::tools
