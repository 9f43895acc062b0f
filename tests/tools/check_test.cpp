// SPDX-License-Identifier: Apache-2.0
// The checker can fail: one wrong byte anywhere, and it says where.
#include <gtest/gtest.h>

#include <fmt/ranges.h>

#include <cmath>
#include <functional>

#include "quire/element.h"
#include "tools/case_text.h"
#include "tools/check/check_case.h"

namespace quire::tools {
namespace {

using Saboteur = std::function<void(Built&)>;

CheckProblem build(const nlohmann::json& object) {
  const Case subject = parse_one(object);
  return {.subject = subject.build(Layout::requested),
          .exact = subject.build(Layout::contiguous),
          .naive = subject.build(Layout::contiguous),
          .build_twin = [subject](std::uint64_t draw) {
            return subject.build(Layout::contiguous, draw);
          }};
}

// The reference kernel, on any machine: its results are exact, so that only the sabotage is to be found.
Context on_reference() {
  Context context;
  context.kernel = "reference";
  return context;
}

// The op, and after it a hand that does something it should not. `kernel` is what the plan claims.
Verdict check_sabotaged(const nlohmann::json& object, const Saboteur& saboteur,
                        const std::string& kernel = "") {
  CheckProblem problem = build(object);
  problem.subject.run = [run = problem.subject.run, &problem, saboteur](const Context& context) {
    run(context);
    saboteur(problem.subject);
  };
  if (!kernel.empty()) {
    problem.subject.supports = [kernel](const Context&) {
      Plan plan;
      plan.kernel = kernel;
      return plan;
    };
  }
  return check_problem(problem, on_reference());
}

std::string faults_of(const Verdict& verdict) {
  return fmt::format("{}", fmt::join(verdict.faults, "\n"));
}

Buffer& buffer_of(Built& built, const std::string& name) {
  for (Buffer& buffer : built.memory.buffers()) {
    if (buffer.name == name) return buffer;
  }
  throw std::runtime_error("no buffer " + name);
}

void flip(Buffer& buffer, std::int64_t from_data_start) {
  buffer.storage[static_cast<std::size_t>(buffer.data_offset + from_data_start)] ^= std::byte{1};
}

TEST(Check, PassesAnHonestOp) {
  const Verdict verdict = check_sabotaged(small_attention(), [](Built&) {});
  EXPECT_EQ(verdict.outcome, Outcome::passed) << faults_of(verdict);
  EXPECT_EQ(verdict.kernel, "reference/flash_attention");
  EXPECT_EQ(verdict.max_error, 0.0);
}

TEST(Check, SeesOneFlippedBitOfAnOutput) {
  const Verdict verdict = check_sabotaged(
      small_attention(), [](Built& built) { flip(buffer_of(built, "out"), 2 * 70); });
  EXPECT_EQ(verdict.outcome, Outcome::failed);
  // Element 70 of [5, 4, 16].
  EXPECT_NE(
      faults_of(verdict).find(
          "'out' must equal the reference bit for bit: 1 of 320 elements differ, first [1, 0, 6]"),
      std::string::npos)
      << faults_of(verdict);
}

TEST(Check, SeesOneFlippedBitOfTheLse) {
  const Verdict verdict =
      check_sabotaged(small_attention(), [](Built& built) { flip(buffer_of(built, "lse"), 0); });
  EXPECT_NE(faults_of(verdict).find("'lse' must equal"), std::string::npos) << faults_of(verdict);
}

TEST(Check, SeesAWriteBeforeAndPastABuffer) {
  for (const std::int64_t place : {std::int64_t{-1}, std::int64_t{5 * 4 * 16 * 2}}) {
    const Verdict verdict = check_sabotaged(
        small_attention(), [&](Built& built) { flip(buffer_of(built, "out"), place); });
    EXPECT_EQ(verdict.outcome, Outcome::failed);
    EXPECT_NE(faults_of(verdict).find("wrote 'out' where it may not: guard byte 1"),
              std::string::npos)
        << faults_of(verdict);
  }
}

TEST(Check, SeesAWriteToAnInput) {
  for (const char* name :
       {"q", "row_offsets", "cache.page_table", "cache.cache_lengths", "cache.blocks"}) {
    const Verdict verdict =
        check_sabotaged(small_attention(), [&](Built& built) { flip(buffer_of(built, name), 0); });
    EXPECT_NE(faults_of(verdict).find(std::string("wrote '") + name), std::string::npos) << name;
  }
}

TEST(Check, SeesAnOpThatWritesNothing) {
  CheckProblem problem = build(small_attention());
  problem.subject.run = [](const Context&) {};
  EXPECT_EQ(check_problem(problem, on_reference()).outcome, Outcome::failed);
}

TEST(Check, SeesARunThatDiffersFromTheFirst) {
  int runs = 0;
  const Verdict verdict = check_sabotaged(small_attention(), [&](Built& built) {
    if (++runs == 1) flip(buffer_of(built, "out"), 0);
  });
  EXPECT_EQ(faults_of(verdict), "a second run left other bytes in 'out'");
}

TEST(Check, SeesAChangedCacheRow) {
  const Verdict verdict = check_sabotaged(small_store(), [](Built& built) {
    *built.rows[0].cache.key(built.rows[0].layer).row(1, 2, 1) ^= std::byte{1};
  });
  EXPECT_NE(faults_of(verdict).find("key row of sequence 1, token 2, head 1 must equal"),
            std::string::npos)
      << faults_of(verdict);
}

TEST(Check, SeesAChangedScale) {
  const Verdict verdict = check_sabotaged(small_store(), [](Built& built) {
    const KvLayerView key = built.rows[0].cache.key(built.rows[0].layer);
    key.store_scale(0, 0, 6, 15, 2.0 * key.load_scale(0, 0, 6, 15));
  });
  EXPECT_NE(faults_of(verdict).find("key row of sequence 0, token 6, head 0 must equal"),
            std::string::npos)
      << faults_of(verdict);
}

TEST(Check, SeesAStoreToACachedRow) {
  const Verdict verdict = check_sabotaged(small_store(), [](Built& built) {
    *built.rows[0].cache.key(built.rows[0].layer).row(0, 4, 0) ^= std::byte{1};
  });
  EXPECT_NE(faults_of(verdict).find("wrote 'cache.blocks' where it may not"), std::string::npos);
}

TEST(Check, SeesAStoreToThePageTail) {
  const Verdict verdict = check_sabotaged(small_store(), [](Built& built) {
    *built.rows[0].cache.key(built.rows[0].layer).row(1, 3, 0) ^=
        std::byte{1};  // 3 keys, page of 4
  });
  EXPECT_NE(faults_of(verdict).find("wrote 'cache.blocks' where it may not"), std::string::npos);
}

TEST(Check, SeesAStoreToTheOtherLayerAndSide) {
  for (const bool other_layer : {true, false}) {
    const Verdict verdict = check_sabotaged(small_store(), [&](Built& built) {
      const PagedKVCache& cache = built.rows[0].cache;
      const KvLayerView view = other_layer ? cache.key(0) : cache.value(1);
      *view.row(1, 0, 0) ^= std::byte{1};
    });
    EXPECT_NE(faults_of(verdict).find("wrote 'cache.blocks' where it may not"), std::string::npos);
  }
}

TEST(Check, SeesAnEmptyRowThatIsNotZero) {
  nlohmann::json object = small_attention();
  object["cache"]["unassigned"] = {{0, 0}, {0, 1}};
  Verdict verdict = check_sabotaged(object, [](Built&) {});
  EXPECT_EQ(verdict.outcome, Outcome::passed) << faults_of(verdict);
  verdict = check_sabotaged(object, [](Built& built) { flip(buffer_of(built, "out"), 0); });
  EXPECT_NE(faults_of(verdict).find("token 0 sees no key, yet out[0, 0, 0] is"), std::string::npos);
  verdict = check_sabotaged(object, [](Built& built) { built.outputs[1].view.store({1, 2}, 0.0); });
  EXPECT_NE(faults_of(verdict).find("token 1 sees no key, yet lse[1, 2] is 0"), std::string::npos)
      << faults_of(verdict);
}

TEST(Check, OtherKernelsMayBeAsFarOffAsTheNaiveEvaluation) {
  // A kernel that rounds differently in the last place of one element of about 1.
  const Saboteur last_place = [](Built& built) { flip(buffer_of(built, "out"), 2 * 70); };
  EXPECT_EQ(check_sabotaged(small_attention(), last_place, "cpu/test").outcome, Outcome::passed);
}

TEST(Check, OtherKernelsFailBeyondTheTolerance) {
  const Verdict verdict = check_sabotaged(
      small_attention(),
      [](Built& built) {
        built.outputs[0].view.store({1, 0, 6}, 0.5);
      },
      "cpu/test");
  EXPECT_NE(faults_of(verdict).find("'out' is off by"), std::string::npos) << faults_of(verdict);
}

// f32 sums that are rounded to e4m3 codes before the second product.
nlohmann::json small_decode() {
  return nlohmann::json::parse(R"({
    "name": "small_decode", "op": "mla_decode", "tags": ["tiny"],
    "lengths": {"new": [2, 1], "cached": [30, 9]}, "heads": 8,
    "cache": {"latent": 256, "rope": 8, "page_size": 4, "dtype": "f32"}, "rows": "finished",
    "q_dtype": "f32", "weight_dtype": "fp8_e4m3", "nope": 128, "value": 128
  })");
}

TEST(Check, OtherKernelsMayRoundToTheOtherCodeWhereSumsLeaveItOpen) {
  CheckProblem problem = build(small_decode());
  problem.subject.run = [&](const Context&) {
    problem.subject.reference(reference::Arithmetic::crossed);
  };
  problem.subject.supports = [](const Context&) {
    Plan plan;
    plan.kernel = "cpu/test";
    return plan;
  };
  const Verdict verdict = check_problem(problem, on_reference());
  EXPECT_EQ(verdict.outcome, Outcome::passed) << faults_of(verdict);
  EXPECT_GT(verdict.max_error, 1e-4);  // far beyond what f32 sums alone are allowed
}

// One token of one head: lse is one number. Its naive evaluation is off by 2.6e-5 with these numbers, by 1e-4
// to 2e-3 with most others.
nlohmann::json lucky_lse() {
  return nlohmann::json::parse(R"({
    "name": "mla_prefill/random_23_790", "op": "mla_prefill", "tags": ["edge"],
    "lengths": {"cached": [65, 63], "new": [0, 1]}, "heads": 1, "nope": 128, "value": 128,
    "cache": {"dtype": "bf16", "latent": 512, "rope": 64, "page_size": 64, "row_format": "uniform"},
    "decode_tokens": 2, "freqs_dtype": "bf16", "gamma_dtype": "f32", "rows": "finished",
    "q_dtype": "bf16"
  })");
}

TEST(Check, OneNumberMayBeAsFarOffAsTheNaiveEvaluationOfOthers) {
  struct Fault {
    double off;
    Outcome outcome;
  };
  for (const Fault& fault : {Fault{8.5e-5, Outcome::passed}, Fault{8.5e-3, Outcome::failed}}) {
    const Verdict verdict = check_sabotaged(
        lucky_lse(),
        [&](Built& built) {
          const TensorView lse = built.outputs[1].view;
          lse.store({0, 0}, lse.load({0, 0}) + fault.off);
        },
        "cpu/test");
    EXPECT_EQ(verdict.outcome, fault.outcome) << fault.off << ": " << faults_of(verdict);
  }
}

// The results of f32 arithmetic with any roundings pass; what is a hundred of its ulps off, less than a bf16 rounding
// anywhere would cost, does not.
TEST(Check, RandomRoundingIsNoLicence) {
  nlohmann::json object = small_attention();
  object["q_dtype"] = "f32";
  object["cache"]["dtype"] = "f32";
  CheckProblem problem = build(object);
  problem.subject.supports = [](const Context&) {
    Plan plan;
    plan.kernel = "cpu/test";
    return plan;
  };
  problem.subject.run = [&](const Context&) {
    problem.subject.reference(
        reference::Arithmetic::random(200));  // a seed that the checker does not try
  };
  EXPECT_EQ(check_problem(problem, on_reference()).outcome, Outcome::passed);
  const Verdict verdict = check_sabotaged(
      object,
      [](Built& built) {
        const TensorView out = built.outputs[0].view;
        for (std::int64_t head = 0; head < out.shape[1]; ++head) {
          for (std::int64_t column = 0; column < out.shape[2]; ++column) {
            out.store({1, head, column}, out.load({1, head, column}) * (1.0 + 0x1p-17));
          }
        }
      },
      "cpu/test");
  EXPECT_NE(faults_of(verdict).find("'out' is off by"), std::string::npos) << faults_of(verdict);
}

TEST(Check, OtherKernelsFailWhereEveryCodeOrOneScaleIsOff) {
  struct Fault {
    const char* name;
    std::int64_t first;
    std::int64_t step;
  };
  // The last bit of every code; the last of f32's bits that bf16 has too.
  for (const Fault& fault : {Fault{"w_uv", 0, 1}, Fault{"w_uv_scale", 2, 1 << 20}}) {
    CheckProblem problem = build(small_decode());
    Buffer& buffer = buffer_of(problem.subject, fault.name);
    const auto bend = [&] {
      for (std::int64_t i = fault.first; i < buffer.data_bytes; i += fault.step) flip(buffer, i);
    };
    problem.subject.run = [&, run = problem.subject.run](const Context& context) {
      bend();
      run(context);
      bend();
    };
    problem.subject.supports = [](const Context&) {
      Plan plan;
      plan.kernel = "cpu/test";
      return plan;
    };
    const Verdict verdict = check_problem(problem, on_reference());
    EXPECT_NE(faults_of(verdict).find("'out' is off by"), std::string::npos)
        << fault.name << ": " << faults_of(verdict);
  }
}

TEST(Check, OtherKernelsMustHaveNanInTheSamePlaces) {
  const Verdict verdict = check_sabotaged(
      small_attention(),
      [](Built& built) {
        built.outputs[0].view.store({0, 0, 0}, std::nan(""));
      },
      "cpu/test");
  EXPECT_NE(faults_of(verdict).find("'out' element 0 is nan"), std::string::npos)
      << faults_of(verdict);
}

TEST(Check, OtherKernelsStoreRowsWithinTheTolerance) {
  const auto shift_row = [](double factor) {
    return [factor](Built& built) {
      const KvLayerView key = built.rows[0].cache.key(built.rows[0].layer);
      key.store(1, 0, 2, 3, factor * key.load_quantized(1, 0, 2, 3));
    };
  };
  EXPECT_EQ(check_sabotaged(small_store(), shift_row(1.0), "cpu/test").outcome, Outcome::passed);
  EXPECT_EQ(check_sabotaged(small_store(), shift_row(-3.0), "cpu/test").outcome, Outcome::failed);
}

TEST(Check, JudgesAnIndexerBySelectionNotByBits) {
  nlohmann::json object = nlohmann::json::parse(R"({
    "name": "index", "op": "mla_indexer", "tags": ["tiny"], "heads": 2, "top_k": 4,
    "lengths": {"new": [1], "cached": [20]},
    "cache": {"latent": 16, "rope": 0, "page_size": 4, "dtype": "fp8_e4m3", "row_format": "scaled"}
  })");
  EXPECT_EQ(check_sabotaged(
                object, [](Built&) {}, "cpu/test")
                .outcome,
            Outcome::passed);
  const Verdict verdict = check_sabotaged(
      object,
      [](Built& built) {
        built.outputs[0].view.store({0, 3}, -1.0);
      },
      "cpu/test");
  EXPECT_EQ(verdict.outcome, Outcome::failed);
  EXPECT_NE(faults_of(verdict).find("token 0: "), std::string::npos) << faults_of(verdict);
}

TEST(Check, SeesAWrongPhysicalRow) {
  nlohmann::json object = nlohmann::json::parse(R"({
    "name": "remap", "op": "remap_sparse_indices", "tags": ["tiny"], "top_k": 4, "indices": "chosen",
    "lengths": {"new": [1], "cached": [20]}, "cache": {"latent": 8, "rope": 2, "page_size": 4}
  })");
  EXPECT_EQ(check_sabotaged(object, [](Built&) {}).outcome, Outcome::passed);
  const Verdict verdict = check_sabotaged(object, [](Built& built) {
    built.outputs[0].view.store({0, 1}, 0.0);
  });
  EXPECT_NE(faults_of(verdict).find("token 0, slot 1: position"), std::string::npos)
      << faults_of(verdict);
}

TEST(Check, SkipsWhatNoKernelTakes) {
  CheckProblem problem = build(small_attention());
  Context context;
  context.kernel = "cpu/none";
  const Verdict verdict = check_problem(problem, context);
  EXPECT_EQ(verdict.outcome, Outcome::skipped);
  EXPECT_NE(faults_of(verdict).find("no kernel"), std::string::npos);
}

TEST(Check, AnExceptionIsAFailureWithItsText) {
  nlohmann::json object = small_attention();
  object["softcap"] = -1.0;  // a well-formed case of a problem that the op rejects
  const Verdict verdict = check_case(parse_one(object), {});
  EXPECT_EQ(verdict.outcome, Outcome::failed);
  EXPECT_NE(faults_of(verdict).find("threw: flash_attention: 'softcap'"), std::string::npos)
      << faults_of(verdict);
}

}  // namespace
}  // namespace quire::tools
