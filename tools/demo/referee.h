// SPDX-License-Identifier: Apache-2.0
// Runs ops, times them, and has the oracle repeat every call on contiguous copies of its inputs.
// A call that the reference kernel served must agree bit for bit, and so must a copy of bytes; any
// other within the tolerance.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tools/demo/op_table.h"
#include "tools/demo/site.h"

namespace quire::tools::demo {

struct OpRecord {
  std::int64_t calls = 0;
  std::int64_t tokens = 0;
  std::int64_t agreed = 0;
  std::chrono::nanoseconds time{};  // of the op alone
  std::string kernel{};             // of the last call
};

struct Disagreement {
  std::string stack;
  int step;
  std::string op;
  std::string where;
};

// Sees, and may change, what an op wrote before it is compared: tests prove with it that an error
// would be noticed.
using Saboteur = std::function<void(std::string_view op, const TensorView& output)>;

class Referee {
 public:
  explicit Referee(Context context = {}, Saboteur saboteur = {}, Site& site = host_site())
      : context_(std::move(context)), saboteur_(std::move(saboteur)), site_(site) {}

  template <typename Args> void call(const Op<Args>& op, const std::type_identity_t<Args>& args);
  // A condition of the demo's own on top of the op's agreement.
  void require(std::string_view op, const Fault& fault);

  // For the disagreements' addresses.
  void begin_step(std::string stack, int step) {
    stack_ = std::move(stack);
    step_ = step;
  }
  const std::map<std::string, OpRecord, std::less<>>& records() const { return records_; }
  const std::vector<Disagreement>& disagreements() const { return disagreements_; }
  std::int64_t num_conditions() const { return num_conditions_; }
  std::chrono::nanoseconds oracle_time() const { return oracle_time_; }

 private:
  void report(std::string_view op, const std::string& fault);

  using Clock = std::chrono::steady_clock;

  Context context_;
  Saboteur saboteur_;
  Site& site_;
  std::string stack_;
  int step_ = 0;
  std::map<std::string, OpRecord, std::less<>> records_;
  std::vector<Disagreement> disagreements_;
  std::int64_t num_conditions_ = 0;
  std::chrono::nanoseconds oracle_time_{};
};

// Arguments with everything that the op changes replaced by copies.
template <typename Args> class Replay {
 public:
  Replay(const Op<Args>& op, const Args& args) : args_(args), live_(args) {
    const Changes copied = op.changes(args_);
    for (const Changes::Output& output : copied.outputs) {
      copies_.push_back(Tensor::copy_of(*output.tensor));
      *output.tensor = copies_.back().view();
    }
    for (const Changes::Cache& use : copied.caches) {
      twins_.emplace_back(*use.cache, *use.layer, *copied.row_offsets, use.pages);
      *use.cache = twins_.back().view();
      *use.layer = 0;
    }
    live_changes_ = op.changes(live_);
  }
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  const Args& args() const { return args_; }
  const std::vector<Changes::Output>& outputs() const { return live_changes_.outputs; }

  // `naive` holds the results of the oracle's naive arithmetic; none: the op has no such thing.
  Fault compare(Closeness closeness, const Replay* naive) const {
    for (std::size_t i = 0; i < outputs().size(); ++i) {
      std::optional<TensorView> rough;
      if (naive != nullptr) rough = naive->copies_[i].view();
      const Fault fault = compare_outputs(std::string(outputs()[i].name), *outputs()[i].tensor,
                                          copies_[i].view(), rough, closeness);
      if (fault) return fault;
    }
    for (std::size_t i = 0; i < twins_.size(); ++i) {
      const Fault fault =
          closeness == Closeness::bits
              ? twins_[i].compare_bits()
              : twins_[i].compare_tolerance(naive == nullptr ? nullptr : &naive->twins_[i]);
      if (fault) return fault;
    }
    return std::nullopt;
  }

 private:
  Args args_;
  Args live_;
  Changes live_changes_{};
  std::deque<Tensor> copies_;
  std::deque<CacheTwin> twins_;
};

template <typename Args>
void Referee::call(const Op<Args>& op, const std::type_identity_t<Args>& args) {
  OpRecord& record = records_[std::string(op.name)];
  const Plan plan = op.plan(args, context_);
  record.kernel = plan.kernel;
  const Closeness closeness = op.is_copy || record.kernel.starts_with("reference/")
                                  ? Closeness::bits
                                  : Closeness::tolerance;

  // The oracle goes first, while the inputs that the op changes in place are still there.
  const Clock::time_point start = Clock::now();
  Replay<Args> exact(op, args);
  op.oracle(exact.args(), reference::Arithmetic::exact);
  std::unique_ptr<Replay<Args>> naive;
  if (closeness == Closeness::tolerance && op.has_naive) {
    naive = std::make_unique<Replay<Args>>(op, args);
    op.oracle(naive->args(), reference::Arithmetic::naive);
  }
  oracle_time_ += Clock::now() - start;

  const Clock::time_point begin = Clock::now();
  site_.run(context_, plan.workspace_bytes, [&](const Context& context) { op.run(args, context); });
  record.time += Clock::now() - begin;
  ++record.calls;
  record.tokens += op.tokens(args);

  if (saboteur_) {
    for (const Changes::Output& output : exact.outputs()) saboteur_(op.name, *output.tensor);
  }
  const bool is_judged = closeness == Closeness::tolerance && op.judge != nullptr;
  const Fault fault = is_judged ? op.judge(args) : exact.compare(closeness, naive.get());
  if (fault) {
    report(op.name, *fault);
  } else {
    ++record.agreed;
  }
}

}  // namespace quire::tools::demo
