// SPDX-License-Identifier: Apache-2.0
// The converters of every target against quire/element.h: every code when widening, and when
// narrowing every float at, just below and just above each midpoint.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "cpu/row_target.h"
#include "cpu/runtime/target.h"
#include "cpu/runtime/tile_kernels.h"
#include "quire/element.h"

namespace quire::cpu {
namespace {

constexpr DType kTypes[] = {DType::f32,      DType::f16,      DType::bf16,
                            DType::fp8_e4m3, DType::fp8_e5m2, DType::i8};

class Convert : public RowTarget {};

std::vector<std::byte> all_codes(DType type) {
  const int width = bits(type) / 8;
  const std::int64_t count = width == 1 ? 256 : 65536;
  std::vector<std::byte> codes(static_cast<std::size_t>(count * width));
  for (std::int64_t code = 0; code < count; ++code) {
    std::memcpy(codes.data() + code * width, &code, static_cast<std::size_t>(width));
  }
  return codes;
}

bool same(double a, double b) {
  return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

TEST_P(Convert, WidensEveryCode) {
  for (const DType type : {DType::f16, DType::bf16, DType::fp8_e4m3, DType::fp8_e5m2, DType::i8}) {
    const std::vector<std::byte> codes = all_codes(type);
    // One more, and one less, than whole vectors: the tail is code too.
    const auto count = static_cast<std::int64_t>(codes.size()) * 8 / bits(type) - 1;
    std::vector<float> values(static_cast<std::size_t>(count + 1), -7.0f);
    tile_kernels(GetParam()).widen_row(type, codes.data(), count, values.data());
    for (std::int64_t i = 0; i < count; ++i) {
      const double want = load_element(codes.data(), type, i);
      ASSERT_TRUE(same(values[static_cast<std::size_t>(i)], want)) << name(type) << " code " << i;
    }
    EXPECT_EQ(values.back(), -7.0f) << "wrote past the end";
  }
}

// Numbers around every representable value and every midpoint of neighbours.
std::vector<float> hard_floats(DType type) {
  std::vector<float> floats{0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1e-45f, 3e38f, -3e38f, 1e-39f};
  const std::vector<std::byte> codes = all_codes(type == DType::f32 ? DType::f16 : type);
  const DType codes_type = type == DType::f32 ? DType::f16 : type;
  const auto count = static_cast<std::int64_t>(codes.size()) * 8 / bits(codes_type);
  for (std::int64_t i = 0; i + 1 < count; ++i) {
    const double here = load_element(codes.data(), codes_type, i);
    const double next = load_element(codes.data(), codes_type, i + 1);
    if (!std::isfinite(here) || !std::isfinite(next)) continue;
    const auto middle = static_cast<float>(0.5 * here + 0.5 * next);
    for (const float value : {static_cast<float>(here), middle}) {
      floats.push_back(value);
      floats.push_back(std::nextafter(value, INFINITY));
      floats.push_back(std::nextafter(value, -INFINITY));
    }
  }
  return floats;
}

TEST_P(Convert, NarrowsToNearestEven) {
  for (const DType type : kTypes) {
    const std::vector<float> floats = hard_floats(type);
    const int width = bits(type) / 8;
    std::vector<std::byte> have((floats.size() + 1) * static_cast<std::size_t>(width),
                                std::byte{0x5a});
    tile_kernels(GetParam())
        .narrow_row(type, floats.data(), static_cast<std::int64_t>(floats.size()), have.data());
    for (std::size_t i = 0; i < floats.size(); ++i) {
      const double want = round_to(type, floats[i]);
      const double got = load_element(have.data(), type, static_cast<std::int64_t>(i));
      ASSERT_TRUE(same(got, want)) << name(type) << " of " << floats[i] << ": " << got;
    }
    EXPECT_EQ(have.back(), std::byte{0x5a}) << "wrote past the end";
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Convert, kEveryTarget, target_name);

}  // namespace
}  // namespace quire::cpu
