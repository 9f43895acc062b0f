// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/report.h"

#include <fmt/format.h>
#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace quire::tools::demo {
namespace {

constexpr std::size_t kMaxDisagreements = 10;
constexpr std::size_t kTableWidth = 98;
constexpr const char* kTableNotes = R"(
  Times are of whole calls, checks and planning included; quantize_fp8 counts rows.
  A reference kernel is the oracle's own arithmetic: there, agreement means that pages,
  batches and reuse changed nothing, to the last bit. Any other kernel may be off by
  twice the error of a naive evaluation and one unit in the last place.
)";

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

// Three digits and a unit: 873, 4.88 k, 1.36 M.
std::string rate(double per_second) {
  if (per_second < 1e3) return fmt::format("{:.0f}  ", per_second);
  if (per_second < 1e6) return fmt::format("{:.3g} k", per_second / 1e3);
  return fmt::format("{:.3g} M", per_second / 1e6);
}

std::string rule(std::size_t width) {
  std::string line;
  for (std::size_t i = 0; i < width; ++i) line += "─";
  return line;
}

bool contains(const std::vector<int>& requests, int request) {
  return std::find(requests.begin(), requests.end(), request) != requests.end();
}

// What a request does in a step: tokens read, ● generates, · waits, nothing.
std::string cell(const Step& step, int request) {
  for (const ScheduledSequence& sequence : step.sequences) {
    if (sequence.request != request) continue;
    return sequence.phase == Phase::decode ? "●" : std::to_string(sequence.tokens.size());
  }
  return contains(step.waiting, request) ? "·" : "";
}

std::string letters(const std::vector<int>& requests) {
  std::vector<std::string> names;
  for (const int request : requests) names.emplace_back(1, request_letter(request));
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string events(const StepReport& report) {
  std::vector<std::string> parts;
  if (!report.step.preempted.empty()) {
    parts.push_back(letters(report.step.preempted) + " gives its pages back");
  }
  for (const ScheduledSequence& sequence : report.step.sequences) {
    const bool found_some = sequence.shared_pages > 0 || sequence.copied_tokens > 0;
    if (!found_some || !contains(report.step.admitted, sequence.request)) continue;
    std::string part =
        fmt::format("{} shares {} pages", request_letter(sequence.request), sequence.shared_pages);
    if (sequence.copied_tokens > 0) {
      part += fmt::format(", copies {} tokens", sequence.copied_tokens);
    }
    parts.push_back(std::move(part));
  }
  if (!report.finished.empty()) parts.push_back(letters(report.finished) + " done");
  return fmt::format("{}", fmt::join(parts, "; "));
}

OpRecord total_of(const Referee& referee) {
  OpRecord total;
  for (const auto& [name, record] : referee.records()) {
    total.calls += record.calls;
    total.agreed += record.agreed;
    total.time += record.time;
  }
  return total;
}

void print_record(std::ostream& out, std::string_view name, const OpRecord& record) {
  if (record.calls == 0) {
    fmt::print(out, "  {:<23} {:>5}  not needed by these requests\n", name, 0);
    return;
  }
  fmt::print(out, "  {:<23} {:>5} {:>7} {:>8.1f} {:>9}  {:>9}  {}\n", name, record.calls,
             record.tokens, 1e3 * seconds(record.time),
             rate(static_cast<double>(record.tokens) / std::max(seconds(record.time), 1e-9)),
             fmt::format("{}/{}", record.agreed, record.calls), record.kernel);
}

}  // namespace

char request_letter(int request) {
  return static_cast<char>('A' + request % 26);
}

Timeline::Timeline(std::ostream& out, int num_requests) : out_(out), num_requests_(num_requests) {}

void Timeline::print_head() const {
  fmt::print(out_, "\n  step │");
  for (int r = 0; r < num_requests_; ++r) fmt::print(out_, "{:>3}", request_letter(r));
  fmt::print(out_, " │ tokens  keys  pages cached reused │\n");
  fmt::print(out_, "  {}┼{}┼{}┼{}\n", rule(5),
             rule(static_cast<std::size_t>(num_requests_) * 3 + 1), rule(35), rule(24));
}

void Timeline::print_step(const StepReport& report) const {
  fmt::print(out_, "  {:>4} │", report.step.index);
  for (int r = 0; r < num_requests_; ++r) fmt::print(out_, "{:>3}", cell(report.step, r));
  const std::string pages = fmt::format("{}/{}", report.pages_in_use, report.num_pages);
  const std::string notes = events(report);
  fmt::print(out_, " │ {:>6} {:>5} {:>6} {:>6} {:>6} │{}{}\n", report.step.num_tokens(),
             report.num_keys, pages, report.pages_cached, report.num_reuses,
             notes.empty() ? "" : " ", notes);
}

void print_stack(std::ostream& out, const Stack& stack) {
  fmt::print(out, "\n{}\n", stack.name());
  for (const std::string& line : stack.describe()) fmt::print(out, "  {}\n", line);
}

void print_summary(std::ostream& out, const Stack& stack, const Summary& summary, bool verbose) {
  fmt::print(out, "\n  {} requests in {} steps, {:.2f} s with the oracle\n",
             summary.requests.size(), summary.num_steps, seconds(summary.time));
  fmt::print(out, "  tokens: {} computed, {} generated, {} found in cached pages ({} copied)\n",
             summary.num_tokens, summary.num_generated, summary.num_shared_tokens,
             summary.num_copied_tokens);
  fmt::print(out,
             "  pages: at most {} in use, {} times one was reused, {} left over; {} preempted\n",
             summary.peak_pages, summary.num_reuses, summary.pages_left, summary.num_preemptions);
  for (const std::string& note : stack.notes()) fmt::print(out, "  {}\n", note);
  if (!verbose) return;
  for (std::size_t r = 0; r < summary.requests.size(); ++r) {
    fmt::print(out, "  {}: prompt of {}, generated {}\n", request_letter(static_cast<int>(r)),
               summary.requests[r].prompt_length, fmt::join(summary.requests[r].generated, " "));
  }
}

void print_op_table(std::ostream& out, const Referee& referee) {
  fmt::print(out, "\n  {:<23} {:>5} {:>7} {:>8} {:>9}  {:>9}  {}\n", "op", "calls", "tokens", "ms",
             "tokens/s", "agreed", "kernel");
  fmt::print(out, "  {}\n", rule(kTableWidth));
  for (const std::string_view name : all_op_names()) {
    const auto found = referee.records().find(name);
    const OpRecord record = found == referee.records().end() ? OpRecord{} : found->second;
    print_record(out, name, record);
  }
  fmt::print(out, "  {}\n", rule(kTableWidth));
  const OpRecord total = total_of(referee);
  fmt::print(out, "  {:<23} {:>5} {:>7} {:>8.1f} {:>9}  {:>9}\n", "all", total.calls, "",
             1e3 * seconds(total.time), "", fmt::format("{}/{}", total.agreed, total.calls));
  fmt::print(out, "{}", kTableNotes);
}

void print_verdict(std::ostream& out, const Referee& referee) {
  const std::vector<Disagreement>& faults = referee.disagreements();
  fmt::print(out, "\n");
  for (std::size_t i = 0; i < std::min(faults.size(), kMaxDisagreements); ++i) {
    fmt::print(out, "DISAGREES  {}, step {}, {}: {}\n", faults[i].stack, faults[i].step,
               faults[i].op, faults[i].where);
  }
  const OpRecord total = total_of(referee);
  fmt::print(out,
             "{} of {} op calls agreed; {} conditions on top of them; ops {:.2f} s, oracle "
             "{:.2f} s\n",
             total.agreed, total.calls, referee.num_conditions(), seconds(total.time),
             seconds(referee.oracle_time()));
  if (faults.empty()) {
    fmt::print(out, "every step agreed with the oracle\n");
  } else {
    fmt::print(out, "{} disagreements with the oracle\n", faults.size());
  }
}

}  // namespace quire::tools::demo
