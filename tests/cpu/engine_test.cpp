// SPDX-License-Identifier: Apache-2.0
// Every matrix engine that can run here against double sums, for ragged sizes, null vectors and
// both ways of packing B.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "cpu/row_target.h"
#include "cpu/runtime/target.h"
#include "cpu/runtime/tile_kernels.h"
#include "quire/element.h"

namespace quire::cpu {
namespace {

template <typename Element> double value_of(Element element) {
  if constexpr (std::is_same_v<Element, float>) return element;
  return load_element(&element, DType::bf16, 0);
}

template <typename Element> Element element_of(double value) {
  Element element{};
  const bool is_f32 = std::is_same_v<Element, float>;
  store_element(&element, is_f32 ? DType::f32 : DType::bf16, 0, value);
  return element;
}

// Row-major [rows, columns]; row `null_row` is handed to the engine as a null pointer.
template <typename Element> struct Matrix {
  std::int64_t rows, columns;
  std::int64_t null_row;
  std::vector<Element> data;

  Matrix(std::int64_t num_rows, std::int64_t num_columns, std::int64_t null, std::mt19937& random)
      : rows(num_rows),
        columns(num_columns),
        null_row(null),
        data(static_cast<std::size_t>(num_rows * num_columns)) {
    std::normal_distribution<double> normal;
    for (Element& element : data) element = element_of<Element>(normal(random));
  }
  const Element* row(std::int64_t index) const {
    return index == null_row ? nullptr : data.data() + index * columns;
  }
  double at(std::int64_t row, std::int64_t column) const {
    return row == null_row ? 0.0 : value_of(data[static_cast<std::size_t>(row * columns + column)]);
  }
};

enum class Side { columns, rows };  // how B is given

struct Size {
  std::int64_t m, n, k;
};

template <typename Element> class Product {
 public:
  Product(const TileEngineTable<Element>& engine, Size size, Side side, unsigned seed)
      : engine_(engine),
        size_(size),
        side_(side),
        random_(seed),
        a_(size.m, size.k, size.m > 2 ? 1 : -1, random_),
        b_(side == Side::columns ? size.n : size.k, side == Side::columns ? size.k : size.n,
           side == Side::columns ? size.n / 2 : size.k / 2, random_),
        row_panels_(static_cast<int>((size.m + engine.rows - 1) / engine.rows)),
        col_panels_(static_cast<int>((size.n + engine.cols - 1) / engine.cols)),
        stride_(std::int64_t{col_panels_} * engine.cols + 3) {}

  std::vector<float> run(bool add, float start) {
    std::vector<float> c(static_cast<std::size_t>(stride_ * row_panels_ * engine_.rows), start);
    const std::vector<Element> a = pack_a();
    const std::vector<Element> b = pack_b();
    engine_.multiply(a.data(), row_panels_, b.data(), col_panels_, size_.k, c.data(), stride_, add);
    return c;
  }

  double expected(std::int64_t i, std::int64_t j, double* magnitude) const {
    double sum = 0.0;
    *magnitude = 0.0;
    for (std::int64_t k = 0; k < size_.k; ++k) {
      const double product = a_.at(i, k) * (side_ == Side::columns ? b_.at(j, k) : b_.at(k, j));
      sum += product;
      *magnitude += std::abs(product);
    }
    return sum;
  }

  std::int64_t stride() const { return stride_; }
  int padded_rows() const { return row_panels_ * engine_.rows; }
  int padded_cols() const { return col_panels_ * engine_.cols; }

 private:
  std::int64_t padded_depth() const {
    return (size_.k + engine_.depth - 1) / engine_.depth * engine_.depth;
  }

  // Panels start as garbage: packing must write every element.
  std::vector<Element> pack_a() const {
    const std::int64_t panel = engine_.rows * padded_depth();
    std::vector<Element> packed(static_cast<std::size_t>(panel * row_panels_),
                                element_of<Element>(NAN));
    for (int p = 0; p < row_panels_; ++p) {
      std::vector<const Element*> rows;
      for (std::int64_t i = p * engine_.rows; i < size_.m && i < (p + 1) * engine_.rows; ++i) {
        rows.push_back(a_.row(i));
      }
      engine_.pack_a(rows.data(), static_cast<int>(rows.size()), size_.k,
                     packed.data() + p * panel);
    }
    return packed;
  }

  std::vector<Element> pack_b() const {
    const std::int64_t panel = engine_.cols * padded_depth();
    std::vector<Element> packed(static_cast<std::size_t>(panel * col_panels_),
                                element_of<Element>(NAN));
    for (int p = 0; p < col_panels_; ++p) {
      const std::int64_t first = std::int64_t{p} * engine_.cols;
      const int count = static_cast<int>(std::min<std::int64_t>(engine_.cols, size_.n - first));
      std::vector<const Element*> vectors;
      if (side_ == Side::columns) {
        for (int j = 0; j < count; ++j) vectors.push_back(b_.row(first + j));
        engine_.pack_b_columns(vectors.data(), count, size_.k, packed.data() + p * panel);
      } else {
        for (std::int64_t k = 0; k < size_.k; ++k) {
          vectors.push_back(b_.row(k) == nullptr ? nullptr : b_.row(k) + first);
        }
        engine_.pack_b_rows(vectors.data(), size_.k, count, packed.data() + p * panel);
      }
    }
    return packed;
  }

  const TileEngineTable<Element>& engine_;
  Size size_;
  Side side_;
  std::mt19937 random_;
  Matrix<Element> a_;
  Matrix<Element> b_;
  int row_panels_;
  int col_panels_;
  std::int64_t stride_;
};

template <typename Element>
void expect_right(const TileEngineTable<Element>& engine, Size size, Side side, bool add) {
  constexpr float kStart = 2.5f;
  Product<Element> product(engine, size, side, 7);
  const std::vector<float> c = product.run(add, kStart);
  for (int i = 0; i < product.padded_rows(); ++i) {
    for (int j = 0; j < product.padded_cols(); ++j) {
      double magnitude = 0.0;
      const bool is_padding = i >= size.m || j >= size.n;
      const double sum = is_padding ? 0.0 : product.expected(i, j, &magnitude);
      const double want = sum + (add ? kStart : 0.0);
      // Products are exact in f32 for bf16; each of the k additions rounds once.
      const double bound = 6e-8 * (static_cast<double>(size.k) + 4.0) * (magnitude + 2.5);
      ASSERT_NEAR(c[static_cast<std::size_t>(i * product.stride() + j)], want, bound)
          << "row " << i << " column " << j << " of " << size.m << "x" << size.n << "x" << size.k;
    }
    ASSERT_EQ(c[static_cast<std::size_t>(i * product.stride() + product.padded_cols())], kStart)
        << "wrote past the columns of row " << i;
  }
}

class Engine : public RowTarget {
 protected:
  const TileKernels& kernels() const { return tile_kernels(GetParam()); }
};

const Size kSizes[] = {{1, 1, 1},    {1, 16, 2},    {3, 5, 7},     {16, 16, 32},  {17, 33, 31},
                       {33, 70, 64}, {40, 96, 100}, {5, 130, 257}, {64, 64, 128}, {31, 15, 513}};

template <typename Element> void check_all(const TileEngineTable<Element>& engine) {
  for (const Size& size : kSizes) {
    for (const Side side : {Side::columns, Side::rows}) {
      expect_right(engine, size, side, false);
      expect_right(engine, size, side, true);
    }
  }
}

TEST_P(Engine, Bf16Multiplies) {
  check_all(kernels().bf16);
}

TEST_P(Engine, F32Multiplies) {
  check_all(kernels().f32);
}

// Packing from f32 gives the panel that packing the rounded row gives.
template <typename Element> void check_pack_a_f32(const TileEngineTable<Element>& engine) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const std::int64_t depth : {1, 7, 32, 45, 128}) {
    const int num_rows = engine.rows - 1;
    const std::int64_t stride = depth + 2;
    std::vector<float> wide(static_cast<std::size_t>(stride * engine.rows));
    for (float& value : wide) value = normal(random);
    std::vector<Element> narrow(wide.size());
    std::vector<const Element*> rows;
    for (std::size_t i = 0; i < wide.size(); ++i) narrow[i] = element_of<Element>(wide[i]);
    for (int i = 0; i < num_rows; ++i) rows.push_back(narrow.data() + i * stride);
    const std::int64_t padded = (depth + engine.depth - 1) / engine.depth * engine.depth;
    std::vector<Element> want(static_cast<std::size_t>(engine.rows * padded), Element{1});
    std::vector<Element> have(want.size(), Element{2});
    engine.pack_a(rows.data(), num_rows, depth, want.data());
    engine.pack_a_f32(wide.data(), stride, num_rows, depth, have.data());
    EXPECT_EQ(have, want) << "depth " << depth;
  }
}

TEST_P(Engine, PackAFromF32RoundsToNearestEven) {
  check_pack_a_f32(kernels().bf16);
  check_pack_a_f32(kernels().f32);
}

// The promise batch invariance rests on: a row's sums do not depend on the rows around it.
template <typename Element> void check_row_invariance(const TileEngineTable<Element>& engine) {
  constexpr std::int64_t kDepth = 200;
  constexpr int kCount = 40;
  std::mt19937 random(11);
  const Matrix<Element> a(kCount, kDepth, -1, random);
  const Matrix<Element> b(engine.cols * 5, kDepth, -1, random);
  const std::int64_t padded = (kDepth + engine.depth - 1) / engine.depth * engine.depth;
  std::vector<Element> b_panels(static_cast<std::size_t>(engine.cols * 5 * padded));
  for (int p = 0; p < 5; ++p) {
    std::vector<const Element*> columns;
    for (int j = 0; j < engine.cols; ++j) columns.push_back(b.row(p * engine.cols + j));
    engine.pack_b_columns(columns.data(), engine.cols, kDepth,
                          b_panels.data() + p * engine.cols * padded);
  }
  const auto run = [&](std::int64_t first, int count) {
    const int panels = (count + engine.rows - 1) / engine.rows;
    std::vector<Element> packed(static_cast<std::size_t>(panels * engine.rows * padded));
    for (int p = 0; p < panels; ++p) {
      std::vector<const Element*> rows;
      for (int i = p * engine.rows; i < count && i < (p + 1) * engine.rows; ++i) {
        rows.push_back(a.row(first + i));
      }
      engine.pack_a(rows.data(), static_cast<int>(rows.size()), kDepth,
                    packed.data() + p * engine.rows * padded);
    }
    std::vector<float> c(static_cast<std::size_t>(panels * engine.rows * engine.cols * 5));
    engine.multiply(packed.data(), panels, b_panels.data(), 5, kDepth, c.data(), engine.cols * 5,
                    false);
    c.resize(static_cast<std::size_t>(count * engine.cols * 5));
    return c;
  };
  const std::vector<float> all = run(0, kCount);
  for (int i = 0; i < kCount; ++i) {
    const std::vector<float> one = run(i, 1);
    const auto begin = all.begin() + i * engine.cols * 5;
    ASSERT_TRUE(std::equal(one.begin(), one.end(), begin)) << "row " << i;
  }
}

TEST_P(Engine, RowsDoNotDependOnTheirBatch) {
  check_row_invariance(kernels().bf16);
  check_row_invariance(kernels().f32);
}

INSTANTIATE_TEST_SUITE_P(Targets, Engine, kEveryTarget, target_name);

}  // namespace
}  // namespace quire::cpu
