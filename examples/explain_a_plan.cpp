// SPDX-License-Identifier: Apache-2.0
// Ask before you run: supports() checks a call and says which kernel would serve it, and why the
// better candidates refused. A wrong argument throws an Error that names it; nothing is written.
#include <cstdint>
#include <iostream>
#include <vector>

#include "quire/error.h"
#include "quire/ops/flash_attention.h"

namespace {

using quire::DType;

// One sequence of eight cached tokens and one new one; head_dim 16, two heads over one key head.
struct Decode {
  std::vector<float> pool = std::vector<float>(3 * 2 * 4 * 16);
  std::vector<std::uint32_t> lengths{8};
  std::vector<std::uint32_t> table{2, 0, 1};
  std::vector<std::uint32_t> offsets{0, 1};
  std::vector<float> q = std::vector<float>(2 * 16, 0.25f);
  std::vector<float> out = std::vector<float>(2 * 16, -7.0f);

  quire::FlashAttentionArgs args() {
    using quire::TensorView;
    return {
        .q = TensorView::contiguous(q.data(), DType::f32, {1, 2, 16}),
        .row_offsets = TensorView::contiguous(offsets.data(), DType::u32, {2}),
        .cache = {.blocks = TensorView::contiguous(pool.data(), DType::f32, {3, 2, 1, 4, 1, 16}),
                  .cache_lengths = TensorView::contiguous(lengths.data(), DType::u32, {1}),
                  .page_table = TensorView::contiguous(table.data(), DType::u32, {1, 3})},
        .layer = 0,
        .out = TensorView::contiguous(out.data(), DType::f32, {1, 2, 16})};
  }
};

void explain(const quire::Plan& plan) {
  std::cout << "  " << plan.describe() << '\n';
  for (const auto& [name, value] : plan.choices)
    std::cout << "  " << name << " = " << value << '\n';
  for (const quire::Refusal& refusal : plan.refusals) {
    std::cout << "  not " << refusal.kernel << ": " << refusal.reason << '\n';
  }
}

}  // namespace

int main() {
  Decode decode;
  const quire::FlashAttentionArgs good = decode.args();
  std::cout << "a valid call:\n";
  const quire::Plan plan = quire::supports(good);
  explain(plan);

  std::cout << "the same, with a kernel that does not exist:\n";
  const quire::Plan none = quire::supports(good, {.kernel = "abacus"});
  explain(none);

  std::cout << "the cached keys do not fit the page table:\n";
  decode.lengths[0] = 100;
  bool was_refused = false;
  try {
    quire::flash_attention(decode.args());
  } catch (const quire::Error& error) {
    std::cout << "  " << error.what() << '\n';
    std::cout << "  argument: " << error.argument() << '\n';
    was_refused = error.code() == quire::ErrorCode::invalid_value;
  }
  const bool is_untouched = decode.out == std::vector<float>(2 * 16, -7.0f);
  std::cout << "  the output was " << (is_untouched ? "not touched" : "changed") << '\n';
  return plan.supported() && !none.supported() && was_refused && is_untouched ? 0 : 1;
}
