// SPDX-License-Identifier: Apache-2.0
// An op of the C interface: how its struct is read, and the op behind it. One object per op serves the typed function and
// those that take any op, so that they cannot disagree about a call.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "call_context.h"
#include "failure.h"
#include "quire/c/prepared.h"
#include "quire/plan.h"
#include "quire/prepared.h"
#include "reader.h"

struct quire_prepared {
  quire_prepared() = default;
  quire_prepared(const quire_prepared&) = delete;
  quire_prepared& operator=(const quire_prepared&) = delete;
  virtual ~quire_prepared() = default;

  virtual std::string_view op() const = 0;
  virtual const quire::Plan& plan() const = 0;
  virtual void run(const void* args, const quire_context* context) const = 0;

  std::string description{};
};

namespace quire::c {

class AnyOp {
 public:
  constexpr explicit AnyOp(const char* name) : name_(name) {}
  AnyOp(const AnyOp&) = delete;
  AnyOp& operator=(const AnyOp&) = delete;

  const char* name() const { return name_; }
  virtual Plan supports(const void* args, const quire_context* context) const = 0;
  virtual std::unique_ptr<quire_prepared> prepare(const void* args,
                                                  const quire_context* context) const = 0;

 protected:
  ~AnyOp() = default;

 private:
  const char* name_;
};

// The op's own functions, found by its arguments: members of a class with these names would hide them.
template <typename Args> Plan plan_call(const Args& args, const Context& context) {
  return supports(args, context);
}
template <typename Args> auto prepare_call(const Args& args, const Context& context) {
  return prepare(validate(args), context);
}
template <typename Problem, typename Args>
void launch_prepared(const Prepared<Problem>& prepared, const Args& args, const Context& context) {
  run(prepared, args, context);
}

// Given: quire_rope_args, Args: RopeArgs.
template <typename Given, typename Args> class Op final : public AnyOp {
 public:
  struct Functions {
    std::size_t required;  // offset of the first optional field of Given
    Args (*read)(const Reader& in, const Given& from);
    void (*run)(const Args& args, const Context& context);
  };

  constexpr Op(const char* name, Functions functions) : AnyOp(name), functions_(functions) {}

  quire_status call(const Given* args, const quire_context* context) const noexcept {
    return guarded(name(), [&] {
      const Reader in(name());
      const CallContext call(in, context);
      functions_.run(read(in, args), call.value());
    });
  }

  Plan supports(const void* args, const quire_context* context) const override {
    const Reader in(name());
    const CallContext call(in, context);
    return plan_call(read(in, args), call.value());
  }

  std::unique_ptr<quire_prepared> prepare(const void* args,
                                          const quire_context* context) const override {
    const Reader in(name());
    const CallContext call(in, context);
    return std::make_unique<PreparedOp>(*this, prepare_call(read(in, args), call.value()));
  }

 private:
  using Problem = decltype(validate(std::declval<const Args&>()));

  struct PreparedOp final : quire_prepared {
    PreparedOp(const Op& made_by, Prepared<Problem> made)
        : of(made_by), prepared(std::move(made)) {}

    std::string_view op() const override { return of.name(); }
    const Plan& plan() const override { return prepared.plan(); }
    void run(const void* args, const quire_context* context) const override {
      const Reader in(of.name());
      const CallContext call(in, context);
      launch_prepared(prepared, of.read(in, args), call.value());
    }

    const Op& of;
    Prepared<Problem> prepared;
  };

  Args read(const Reader& in, const void* args) const {
    return functions_.read(in, in.structure<Given>("args", args, functions_.required));
  }

  Functions functions_;
};

struct NumberedOp {
  quire_op number;
  const AnyOp* op;
};

// The ops of each file.
std::span<const NumberedOp> attention_ops();
std::span<const NumberedOp> latent_ops();
std::span<const NumberedOp> projection_ops();
std::span<const NumberedOp> row_ops();
std::span<const NumberedOp> sparse_ops();

}  // namespace quire::c
