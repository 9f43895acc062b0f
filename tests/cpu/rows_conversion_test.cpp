// SPDX-License-Identifier: Apache-2.0
// Every code of every small type, every middle between two of them, and their neighbours, against
// quire/element.h; quotients that lie on and beside such middles.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "cpu/row_target.h"
#include "cpu/rows/conversion_kernels.h"

namespace quire::cpu {
namespace {

constexpr DType kSmall[] = {DType::f16, DType::bf16, DType::fp8_e4m3, DType::fp8_e5m2,
                            DType::i8,  DType::i4,   DType::u4};
constexpr DType kAtMostOneByte[] = {DType::fp8_e4m3, DType::fp8_e5m2, DType::i8, DType::i4,
                                    DType::u4};

std::vector<std::byte> all_codes(DType dtype) {
  const std::int64_t count = std::int64_t{1} << bits(dtype);
  std::vector<std::byte> codes(static_cast<std::size_t>(bytes_for(dtype, count)));
  for (std::int64_t code = 0; bits(dtype) == 4 && code < count; code += 2) {
    codes[static_cast<std::size_t>(code / 2)] = static_cast<std::byte>(code | (code + 1) << 4);
  }
  if (bits(dtype) == 4) return codes;
  for (std::int64_t code = 0; code < count; ++code) {
    std::memcpy(codes.data() + bytes_for(dtype, code), &code,
                static_cast<std::size_t>(bits(dtype) / 8));
  }
  return codes;
}

bool is_same(double left, double right) {
  return std::isnan(left)
             ? std::isnan(right) && std::signbit(left) == std::signbit(right)
             : std::bit_cast<std::uint64_t>(left) == std::bit_cast<std::uint64_t>(right);
}

// Finite values of a type and the middles between neighbours, both with their f32 neighbours.
std::vector<float> critical_values(DType dtype) {
  std::vector<double> finite;
  const std::vector<std::byte> codes = all_codes(dtype);
  for (std::int64_t i = 0; i < std::int64_t{1} << bits(dtype); ++i) {
    const double value = load_element(codes.data(), dtype, i);
    if (std::isfinite(value)) finite.push_back(value);
  }
  std::ranges::sort(finite);
  std::vector<float> values{INFINITY, -INFINITY, NAN, -NAN, 3e38f, 0x1p-149f, -0x1p-149f};
  const auto add = [&](double value) {
    const auto middle = static_cast<float>(value);
    values.push_back(middle);
    values.push_back(std::nextafter(middle, INFINITY));
    values.push_back(std::nextafter(middle, -INFINITY));
  };
  for (std::size_t i = 0; i < finite.size(); ++i) {
    add(finite[i]);
    if (i > 0) add((finite[i - 1] + finite[i]) / 2.0);
  }
  add(finite.back() * 1.03125);
  add(finite.front() * 1.03125);
  return values;
}

class RowsConversion : public RowTarget {
 protected:
  const ConversionKernels& kernels() const { return conversion_kernels(GetParam()); }
};

TEST_P(RowsConversion, DecodesEveryCodeExactly) {
  for (const DType dtype : kSmall) {
    const std::vector<std::byte> codes = all_codes(dtype);
    std::vector<float> values(std::size_t{1} << bits(dtype));
    kernels().widen(dtype, codes.data(), static_cast<std::int64_t>(values.size()), values.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double want = load_element(codes.data(), dtype, static_cast<std::int64_t>(i));
      ASSERT_TRUE(is_same(values[i], want)) << name(dtype) << " code " << i << ": " << values[i];
    }
  }
}

TEST_P(RowsConversion, EncodesMiddlesAndTheirNeighboursExactly) {
  for (const DType dtype : kSmall) {
    const std::vector<float> values = critical_values(dtype);
    const auto count = static_cast<std::int64_t>(values.size());
    std::vector<std::byte> have(static_cast<std::size_t>(bytes_for(dtype, count)));
    std::vector<std::byte> want = have;
    kernels().narrow(dtype, values.data(), count, have.data());
    for (std::int64_t i = 0; i < count; ++i) {
      store_element(want.data(), dtype, i, values[static_cast<std::size_t>(i)]);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      ASSERT_TRUE(is_same(load_element(have.data(), dtype, i), load_element(want.data(), dtype, i)))
          << name(dtype) << " of " << values[static_cast<std::size_t>(i)];
    }
    EXPECT_EQ(have, want) << name(dtype);
  }
}

// For a scale s and a middle m: the f32 numbers around m · s, whose f32 quotient is often m itself.
TEST_P(RowsConversion, QuotientsBesideAMiddleGoToTheirSide) {
  std::mt19937 random(5);
  for (const DType dtype : kSmall) {
    const std::vector<float> middles = critical_values(dtype);
    const int num_scales = bits(dtype) <= 8 ? 400 : 4;
    for (int s = 0; s < num_scales; ++s) {
      // 2^-100 to 2^20: both sides of where remainders stop being exact in f32.
      const int exponent = static_cast<int>(random() % 121u) - 100;
      const float scale =
          std::ldexp(1.0f + static_cast<float>(random() % 8388608u) * 0x1p-23f, exponent);
      std::vector<float> values;
      for (const float middle : middles) {
        const auto value = static_cast<float>(static_cast<double>(middle) * scale);
        for (const float neighbour :
             {value, std::nextafter(value, INFINITY), std::nextafter(value, 0.0f)}) {
          values.push_back(neighbour);
        }
      }
      const auto count = static_cast<std::int64_t>(values.size());
      std::vector<std::byte> have(static_cast<std::size_t>(bytes_for(dtype, count)));
      std::vector<std::byte> want = have;
      kernels().quantize(dtype, values.data(), count, scale, have.data());
      for (std::int64_t i = 0; i < count; ++i) {
        store_element(want.data(), dtype, i,
                      static_cast<double>(values[static_cast<std::size_t>(i)]) / scale);
      }
      ASSERT_EQ(have, want) << name(dtype) << " scale " << scale;
    }
  }
}

TEST_P(RowsConversion, TailsOfEveryLengthWriteOnlyThemselves) {
  const std::vector<float> values = critical_values(DType::fp8_e4m3);
  for (const DType dtype : kAtMostOneByte) {
    const std::int64_t step = bits(dtype) == 4 ? 2 : 1;  // whole bytes
    for (std::int64_t count = 0; count <= 40; count += step) {
      std::vector<std::byte> have(48, std::byte{0x5a});
      std::vector<std::byte> want = have;
      kernels().narrow(dtype, values.data(), count, have.data() + 3);
      for (std::int64_t i = 0; i < count; ++i) {
        store_element(want.data() + 3, dtype, i, values[static_cast<std::size_t>(i)]);
      }
      ASSERT_EQ(have, want) << name(dtype) << " x " << count;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, RowsConversion, kEveryTarget, target_name);

}  // namespace
}  // namespace quire::cpu
