// SPDX-License-Identifier: Apache-2.0
// What of a cache may reach a result of the attention ops, on every target, by planted NaN and infinities
// (docs/numerics.md has the promise): of a key that a row does not see, the value may, where it belongs
// to the row's own sequence; nothing else does, and nothing that a row does see is lost.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/attention_subject.h"

namespace quire::cpu {
namespace {

using test::CacheOptions;
using test::HostTensor;
using test::MlaShape;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNumbers[] = {std::numeric_limits<double>::quiet_NaN(), kInfinity, -kInfinity};
// As the reference makes it, and with every bit of its payload set.
constexpr double kNaNs[] = {kNumbers[0], std::bit_cast<double>(~std::uint64_t{0})};
constexpr MlaShape kShape{.heads = 5, .nope = 11, .rope = 6, .latent = 37, .value = 13};

struct NamedSubject {
  std::string name;
  MakeSubject make;
};

// A tree of new tokens; every fourth one is seen by none, not even by itself.
const HostTensor& tree_bits() {
  static const HostTensor bits = [] {
    HostTensor tensor(DType::u8, {45, 41});
    for (std::int64_t token = 0; token < 45; ++token) {
      for (std::int64_t key = 0; key < 41; ++key) {
        const std::int64_t local = token < 41 ? token : token - 42;
        tensor.view().store({token, key}, key <= local && key % 4 != 2 ? 1 : 0);
      }
    }
    return tensor;
  }();
  return bits;
}

std::vector<NamedSubject> flash_subjects() {
  const Mask masks[] = {Mask::causal(), Mask::causal() & Mask::sliding_window(9),
                        Mask::chunked(16) & Mask::causal(), Mask::tree(tree_bits().view()),
                        (Mask::chunked(4) & Mask::causal()) | (Mask::sliding_window(3))};
  std::vector<NamedSubject> subjects;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const CacheOptions options{.cache_lengths = {0, 37, 5, 300},
                               .new_tokens = {41, 1, 0, 3},
                               .row_format = RowFormat::uniform(dtype, 24),
                               .page_size = 8,
                               .num_kv_heads = 2};
    for (const Mask& mask : masks) {
      subjects.push_back({"flash_attention " + std::string(name(dtype)) + " " + mask.describe(),
                          [=] { return std::make_unique<FlashSubject>(options, dtype, mask); }});
    }
    subjects.push_back(
        {"flash_attention " + std::string(name(dtype)) + " softcap",
         [=] { return std::make_unique<FlashSubject>(options, dtype, Mask::causal(), 5.0); }});
  }
  return subjects;
}

std::vector<NamedSubject> latent_subjects() {
  const CacheOptions few{
      .cache_lengths = {9, 0, 3, 40}, .new_tokens = {1, 8, 0, 3}, .page_size = 8};
  const CacheOptions many{
      .cache_lengths = {9, 0, 3, 20}, .new_tokens = {2, 37, 0, 18}, .page_size = 8};
  std::vector<NamedSubject> subjects;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const std::string type(name(dtype));
    subjects.push_back({"mla_decode " + type,
                        [=] { return std::make_unique<DecodeSubject>(few, kShape, dtype); }});
    for (const double softcap : {0.0, 5.0}) {
      subjects.push_back({"mla_prefill " + type + (softcap > 0.0 ? " softcap" : ""), [=] {
                            return std::make_unique<PrefillSubject>(many, kShape, dtype, softcap);
                          }});
    }
    subjects.push_back({"sparse_mla " + type,
                        [=] { return std::make_unique<SparseSubject>(few, kShape, dtype); }});
    subjects.push_back({"sparse_mla " + type + " two streams",
                        [=] { return std::make_unique<TwoStreamSubject>(few, kShape, dtype); }});
  }
  return subjects;
}

std::vector<NamedSubject> all_subjects() {
  std::vector<NamedSubject> subjects = flash_subjects();
  for (NamedSubject& subject : latent_subjects()) subjects.push_back(std::move(subject));
  return subjects;
}

bool is_same(double left, double right) {
  return std::memcmp(&left, &right, sizeof(left)) == 0;
}

// The numbers of one token in an output of so many tokens.
std::span<const double> part_of(const std::vector<double>& values, const reference::Token& token,
                                std::size_t num_tokens) {
  const std::size_t count = values.size() / num_tokens;
  return std::span(values).subspan(static_cast<std::size_t>(token.index) * count, count);
}

class AttentionHygiene : public RowTarget {
 protected:
  // Keys of a sequence worth spoiling: its ends, and what lies around the borders of tiles and pages.
  static std::vector<std::int64_t> keys_of(std::int64_t num_keys) {
    std::vector<std::int64_t> keys;
    for (const std::int64_t key : {0, 2, 14, 31, 38, 299}) {
      if (key < num_keys) keys.push_back(key);
    }
    if (num_keys > 0) keys.push_back(num_keys - 1);
    return keys;
  }

  Results run(const NamedSubject& subject, const std::function<void(Subject&)>& change) const {
    const std::unique_ptr<Subject> fresh = subject.make();
    change(*fresh);
    return fresh->run(context(2));
  }

  // NaN in every number of the tokens that are spoiled; the others as they are in a clean run.
  static void expect_nan_where(const std::vector<reference::Token>& tokens, const Results& actual,
                               const Results& clean,
                               const std::function<bool(const reference::Token&)>& is_spoiled) {
    const auto is_nan = [](double value) { return std::isnan(value); };
    for (const reference::Token& token : tokens) {
      SCOPED_TRACE("token " + std::to_string(token.index));
      const auto out = part_of(actual.out, token, tokens.size());
      const auto lse = part_of(actual.lse, token, tokens.size());
      if (is_spoiled(token)) {
        ASSERT_TRUE(std::ranges::all_of(out, is_nan) && std::ranges::all_of(lse, is_nan));
      } else {
        ASSERT_TRUE(std::ranges::equal(out, part_of(clean.out, token, tokens.size()), is_same));
        ASSERT_TRUE(std::ranges::equal(lse, part_of(clean.lse, token, tokens.size()), is_same));
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(, AttentionHygiene, kEveryTarget, target_name);

TEST_P(AttentionHygiene, NothingThatIsNoKeyReachesAResult) {
  for (const NamedSubject& subject : all_subjects()) {
    const auto with_outside = [&](double number) {
      return run(subject, [&](Subject& fresh) {
        fresh.cache().unassign(3, 1);
        fresh.fill_outside(number);
      });
    };
    const Results clean = with_outside(0.0);
    for (const double number : kNumbers) {
      EXPECT_EQ(with_outside(number).bits, clean.bits) << subject.name << " " << number;
    }
  }
}

TEST_P(AttentionHygiene, NothingOfOtherSequencesReachesAResult) {
  for (const NamedSubject& subject : all_subjects()) {
    const Results clean = run(subject, [](Subject&) {});
    const std::vector<reference::Token> tokens = subject.make()->tokens();
    for (const double number : kNumbers) {
      for (const std::int64_t spoiled : {0, 3}) {
        const Results actual = run(subject, [&](Subject& fresh) {
          for (std::int64_t key = 0; key < fresh.num_keys(spoiled); ++key) {
            fresh.spoil(spoiled, key, RowSide::key_only, number);
            fresh.spoil(spoiled, key, RowSide::value, number);
          }
        });
        for (const reference::Token& token : tokens) {
          if (token.sequence == spoiled) continue;
          EXPECT_TRUE(std::ranges::equal(part_of(actual.out, token, tokens.size()),
                                         part_of(clean.out, token, tokens.size()), is_same) &&
                      std::ranges::equal(part_of(actual.lse, token, tokens.size()),
                                         part_of(clean.lse, token, tokens.size()), is_same))
              << subject.name << " " << number << " token " << token.index;
        }
      }
    }
  }
}

TEST_P(AttentionHygiene, AKeyReachesTheRowsThatSeeItAndNoOthers) {
  for (const NamedSubject& subject : all_subjects()) {
    const Results clean = run(subject, [](Subject&) {});
    const std::unique_ptr<Subject> shape = subject.make();
    for (const std::int64_t sequence : {0, 1, 3}) {
      for (const std::int64_t key : keys_of(shape->num_keys(sequence))) {
        SCOPED_TRACE(subject.name + " key " + std::to_string(key) + " of sequence " +
                     std::to_string(sequence));
        const Results actual = run(subject, [&](Subject& fresh) {
          fresh.spoil(sequence, key, RowSide::key_only, kNaNs[key % 2]);
        });
        expect_nan_where(shape->tokens(), actual, clean, [&](const reference::Token& token) {
          return token.sequence == sequence && shape->sees(token, key);
        });
      }
    }
  }
}

TEST_P(AttentionHygiene, AQueryReachesItsOwnRowsAndNoOthers) {
  for (const NamedSubject& subject : all_subjects()) {
    const Results clean = run(subject, [](Subject&) {});
    const std::vector<reference::Token> tokens = subject.make()->tokens();
    for (const double number : kNaNs) {
      for (const reference::Token& spoiled : {tokens.front(), tokens[3], tokens.back()}) {
        SCOPED_TRACE(subject.name + " query " + std::to_string(spoiled.index));
        const Results actual = run(subject, [&](Subject& fresh) {
          const TensorView q = fresh.queries().view();
          for (std::int64_t head = 0; head < q.shape[1]; ++head) {
            q.store({spoiled.index, head, q.shape[2] - 1}, number);
          }
        });
        expect_nan_where(tokens, actual, clean, [&](const reference::Token& token) {
          return token.index == spoiled.index;
        });
      }
    }
  }
}

// A value reaches the rows that see its key. Of those that do not, rows of its own sequence may get NaN
// where a tile multiplies it by 0 for them, but no other number than their own, and their LSE stays.
TEST_P(AttentionHygiene, AValueReachesTheRowsThatSeeItAndNoOtherSequence) {
  for (const NamedSubject& subject : all_subjects()) {
    const Results clean = run(subject, [](Subject&) {});
    const std::unique_ptr<Subject> shape = subject.make();
    const std::vector<reference::Token> tokens = shape->tokens();
    for (const double number : {kNumbers[0], kNumbers[1]}) {
      for (const std::int64_t sequence : {0, 1, 3}) {
        for (const std::int64_t key : keys_of(shape->num_keys(sequence))) {
          const Results actual = run(
              subject, [&](Subject& fresh) { fresh.spoil(sequence, key, RowSide::value, number); });
          for (const reference::Token& token : tokens) {
            SCOPED_TRACE(subject.name + " key " + std::to_string(key) + " of sequence " +
                         std::to_string(sequence) + " token " + std::to_string(token.index));
            const auto out = part_of(actual.out, token, tokens.size());
            const auto before = part_of(clean.out, token, tokens.size());
            if (token.sequence == sequence && shape->sees(token, key)) {
              ASSERT_TRUE(std::ranges::none_of(out, [](double v) { return std::isfinite(v); }));
              continue;
            }
            const bool may_be_nan = shape->shares_tiles() && token.sequence == sequence;
            ASSERT_TRUE(std::ranges::equal(out, before, [may_be_nan](double now, double then) {
              return is_same(now, then) || (may_be_nan && std::isnan(now));
            }));
            ASSERT_TRUE(std::ranges::equal(part_of(actual.lse, token, tokens.size()),
                                           part_of(clean.lse, token, tokens.size()), is_same));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace quire::cpu
