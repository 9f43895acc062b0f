// SPDX-License-Identifier: Apache-2.0
// merge_states on every target against the reference.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "cpu/row_target.h"
#include "cpu/row_tolerance.h"
#include "quire/ops/merge_states.h"
#include "reference/merge_states.h"

namespace quire::cpu {
namespace {

using test::HostTensor;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Problem {
  std::int64_t num_states = 3;
  std::int64_t tokens = 7;
  std::int64_t heads = 3;
  std::int64_t value_dim = 40;
  DType dtype = DType::bf16;
  DType out_dtype = DType::bf16;
  bool has_lse = true;
  double lse_range = 8.0;
};

struct Outputs {
  explicit Outputs(const Problem& problem)
      : out(problem.out_dtype, {problem.tokens, problem.heads + 1, problem.value_dim + 1}),
        lse(DType::f32, {problem.heads, problem.tokens}) {}  // transposed for the op

  HostTensor out;
  HostTensor lse;
};

class RowsMergeStates : public RowTarget {
 protected:
  void make(const Problem& problem) {
    problem_ = problem;
    states_ = make_numbers(
        Numbers::ordinary, problem.dtype,
        {problem.num_states, problem.tokens, problem.heads + 1, problem.value_dim + 2}, 3);
    lses_ = HostTensor::random(DType::f32, {problem.num_states, problem.heads, problem.tokens}, 5,
                               problem.lse_range);
  }
  void set_lse(std::int64_t state, std::int64_t token, std::int64_t head, float value) {
    lses_.view().store({state, head, token}, value);
  }
  void fill_state(std::int64_t state, std::int64_t token, std::int64_t head, float value) {
    for (std::int64_t i = 0; i < problem_.value_dim; ++i) {
      states_.view().store({state, token, head, i}, value);
    }
  }

  void expect_right() {
    const Outputs exact(problem_);
    const Outputs naive(problem_);
    reference::merge_states(args_for(exact));
    reference::merge_states(args_for(naive), reference::Arithmetic::naive);
    const Outputs first(problem_);
    merge_states(args_for(first), context(1));
    for (const int threads : thread_counts_) {
      const Outputs run(problem_);
      ASSERT_EQ(supports(args_for(run), context(threads)).kernel, kernel("merge_states"));
      merge_states(args_for(run), context(threads));
      expect_within_rule(problem_.out_dtype, run.out.values(), exact.out.values(),
                         naive.out.values());
      expect_within_rule(DType::f32, run.lse.values(), exact.lse.values(), naive.lse.values());
      EXPECT_TRUE(run.out.bytes() == first.out.bytes() && run.lse.bytes() == first.lse.bytes())
          << threads << " threads give other bits";
    }
  }

  Problem problem_{};
  HostTensor states_{};
  HostTensor lses_{};

  static TensorView transposed(TensorView view, int a, int b) {
    std::swap(view.shape[static_cast<std::size_t>(a)], view.shape[static_cast<std::size_t>(b)]);
    std::swap(view.strides[static_cast<std::size_t>(a)], view.strides[static_cast<std::size_t>(b)]);
    return view;
  }
  MergeStatesArgs args_for(const Outputs& outputs) const {
    MergeStatesArgs args{.states = states_.view(),
                         .lses = transposed(lses_.view(), 1, 2),
                         .out = outputs.out.view()};
    args.states.shape[2] = args.out.shape[1] = problem_.heads;
    args.states.shape[3] = args.out.shape[2] = problem_.value_dim;
    if (problem_.has_lse) args.lse = transposed(outputs.lse.view(), 0, 1);
    return args;
  }
};

TEST_P(RowsMergeStates, EveryTypeAndSize) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const DType out : {DType::f32, DType::f16, DType::bf16}) {
      for (const std::int64_t value_dim : {1, 16, 37, 128}) {
        make({.value_dim = value_dim, .dtype = dtype, .out_dtype = out});
        expect_right();
      }
    }
  }
}

TEST_P(RowsMergeStates, ManyStatesAndWideRanges) {
  for (const std::int64_t num_states : {1, 2, 9, 40}) {
    for (const double range : {1e-3, 30.0, 400.0, 1e6}) {
      make({.num_states = num_states,
            .dtype = DType::f32,
            .out_dtype = DType::f32,
            .lse_range = range});
      expect_right();
    }
  }
}

// Equal states weigh the same where no LSE has room for the logarithm of their number.
TEST_P(RowsMergeStates, EqualStatesOfAnyMagnitudeGiveTheirMean) {
  for (const float magnitude : {1e7f, -1e10f, 1e17f, 1e30f, 3e38f, -3e38f}) {
    make({.num_states = 4, .dtype = DType::f32, .out_dtype = DType::f32});
    for (std::int64_t token = 0; token < 7; ++token) {
      for (std::int64_t state = 0; state < 4; ++state) {
        set_lse(state, token, 1, magnitude);
        fill_state(state, token, 1, static_cast<float>(state + 1));
      }
    }
    expect_right();
    const Outputs run(problem_);
    merge_states(args_for(run), context(1));
    for (std::int64_t token = 0; token < 7; ++token) {
      EXPECT_EQ(run.out.at({token, 1, 0}), 2.5) << magnitude;
      EXPECT_NEAR(run.lse.at({1, token}), magnitude, 1e-6 * std::abs(magnitude));
    }
  }
}

// Empty states may hold anything; a token without keys gives 0 and -inf.
TEST_P(RowsMergeStates, EmptyStatesNeverReachTheSum) {
  make({});
  for (std::int64_t head = 0; head < 3; ++head) {
    for (std::int64_t state = 0; state < 3; ++state) {
      set_lse(state, 2, head, -kInfinity);
      fill_state(state, 2, head, kNan);
    }
    set_lse(1, 4, head, -kInfinity);
    fill_state(1, 4, head, kNan);
  }
  expect_right();
}

// What is not a number in the inputs is not one in the outputs, and only there.
TEST_P(RowsMergeStates, NanAndInfinityStayInTheirRows) {
  make({.num_states = 2, .dtype = DType::f32, .out_dtype = DType::f32});
  set_lse(0, 0, 0, kNan);
  set_lse(0, 1, 1, kNan);
  set_lse(1, 1, 1, -kInfinity);
  set_lse(1, 2, 0, kInfinity);
  fill_state(0, 3, 2, kInfinity);
  fill_state(1, 4, 0, kInfinity);  // with a weight too small for f32, which is not 0
  set_lse(0, 4, 0, 200.0f);
  set_lse(1, 4, 0, -100.0f);
  fill_state(0, 5, 0, kNan);
  expect_right();
}

TEST_P(RowsMergeStates, WithoutLseAndWithoutTokens) {
  make({.has_lse = false});
  expect_right();
  make({.tokens = 0, .has_lse = false});
  expect_right();
}

TEST_P(RowsMergeStates, AnyNumberOfThreads) {
  thread_counts_ = kThreadCounts;
  make({.tokens = 200, .heads = 5, .value_dim = 64});
  expect_right();
}

INSTANTIATE_TEST_SUITE_P(Targets, RowsMergeStates, kEveryTarget, target_name);

}  // namespace
}  // namespace quire::cpu
