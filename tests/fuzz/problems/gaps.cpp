// SPDX-License-Identifier: Apache-2.0
#include "fuzz/problems/gaps.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "fuzz/problems/built_views.h"
#include "quire/error.h"

namespace quire::test {
namespace {

using tools::Built;
using tools::Relocation;

// body(byte offset in a, byte offset in b) of every element of two views of one shape.
template <typename Body> void for_pairs(const TensorView& a, const TensorView& b, Body&& body) {
  std::array<std::int64_t, kMaxRank> index{};
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    std::int64_t in_a = 0;
    std::int64_t in_b = 0;
    for (int dim = 0; dim < a.rank; ++dim) {
      in_a += index[dim] * a.strides[dim];
      in_b += index[dim] * b.strides[dim];
    }
    body(bytes_for(a.dtype, in_a), bytes_for(b.dtype, in_b));
    for (int dim = a.rank - 1; dim >= 0 && ++index[dim] == a.shape[dim]; --dim) index[dim] = 0;
  }
}

void copy_elements(const TensorView& from, const TensorView& to) {
  const auto size = static_cast<std::size_t>(bytes_for(from.dtype, 1));
  for_pairs(from, to, [&](std::int64_t in_from, std::int64_t in_to) {
    std::memcpy(to.as<std::byte>() + in_to, from.as<std::byte>() + in_from, size);
  });
}

// Whole bytes, and every element a place of its own.
bool can_have_gaps(const TensorView& view) {
  if (bits(view.dtype) % 8 != 0 || view.numel() > (1 << 16)) return false;
  for (int dim = 0; dim < view.rank; ++dim) {
    if (view.shape[dim] > 1 && view.strides[dim] <= 0) return false;
  }
  return true;
}

// The same order of dimensions in memory, with room added after some of them.
TensorView with_gaps(Draw& draw, const TensorView& view, std::int64_t& elements) {
  std::array<int, kMaxRank> order{};
  std::iota(order.begin(), order.begin() + view.rank, 0);
  std::stable_sort(order.begin(), order.begin() + view.rank,
                   [&](int a, int b) { return view.strides[a] > view.strides[b]; });
  TensorView gapped = view;
  std::int64_t stride = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    const int dim = order[static_cast<std::size_t>(i)];
    // The last dimension is dense in nearly every op: only now and then it is not here.
    const std::int64_t room = i == view.rank - 1 ? 0 : draw.pick({0, 1, 3, 8, 16});
    if (i == view.rank - 1 && draw.one_in(8)) stride = 2;
    gapped.strides[dim] = stride + room;
    stride = gapped.strides[dim] * view.shape[dim];
  }
  elements = stride;
  return gapped;
}

Relocation replacing(std::vector<GappedTensor> tensors) {
  return [tensors = std::move(tensors)](const TensorView& view) {
    const auto found = std::ranges::find_if(tensors, [&](const GappedTensor& tensor) {
      return tensor.dense.data == view.data && tensor.dense.shape == view.shape &&
             tensor.dense.strides == view.strides;
    });
    return found == tensors.end() ? view : found->gapped;
  };
}

bool is_taken(const Built& built, const GappedTensor& tensor) {
  try {
    static_cast<void>(built.relocated(replacing({tensor})).supports({}));
    return true;
  } catch (const Error&) {
    return false;
  }
}

GappedTensor allocate_gapped(Draw& draw, Built& built, const NamedView& named) {
  std::int64_t elements = 0;
  TensorView gapped = with_gaps(draw, named.view, elements);
  const std::int64_t shift = draw.pick({0, 0, 1, 3, 8});
  const TensorView storage =
      built.memory.allocate(named.name + " with gaps", named.view.dtype, {elements + shift});
  gapped.data = storage.as<std::byte>() + bytes_for(named.view.dtype, shift);
  copy_elements(named.view, gapped);
  return {.dense = named.view, .gapped = gapped};
}

void allow_elements(Built& built, const TensorView& view) {
  const std::int64_t size = bytes_for(view.dtype, 1);
  for_pairs(view, view, [&](std::int64_t offset, std::int64_t) {
    built.memory.allow_write(view.as<std::byte>() + offset, size);
  });
}

bool is_written(const Built& built, const NamedView& named) {
  const tools::Place place = built.memory.place_of(named.view.data);
  return !built.memory.buffers()[place.buffer].writable.empty();
}

class BringingBack final : public tools::Runner {
 public:
  BringingBack(std::unique_ptr<tools::Runner> runner, std::vector<GappedTensor> tensors)
      : runner_(std::move(runner)), tensors_(std::move(tensors)) {}

  Plan supports(const Context& context) override { return runner_->supports(context); }
  void run(const Context& context, std::vector<std::string>& faults) override {
    runner_->run(context, faults);
    copy_back();
  }
  bool replay(const Context& context, std::vector<std::string>& faults) override {
    const bool is_replayed = runner_->replay(context, faults);
    if (is_replayed) copy_back();
    return is_replayed;
  }

 private:
  void copy_back() {
    for (const GappedTensor& tensor : tensors_) copy_elements(tensor.gapped, tensor.dense);
  }

  std::unique_ptr<tools::Runner> runner_;
  std::vector<GappedTensor> tensors_;
};

}  // namespace

std::vector<GappedTensor> add_gaps(Draw& draw, Built& built) {
  std::vector<GappedTensor> tensors;
  for (const NamedView& named : views_of(built)) {
    if (!can_have_gaps(named.view) || draw.one_in(2)) continue;
    const GappedTensor tensor = allocate_gapped(draw, built, named);
    if (!is_taken(built, tensor)) continue;
    if (is_written(built, named)) allow_elements(built, tensor.gapped);
    tensors.push_back(tensor);
  }
  if (tensors.empty()) return tensors;
  const auto relocated = built.relocated;
  built.relocated = [relocated, replace = replacing(tensors)](const Relocation& move) {
    return relocated([&](const TensorView& view) { return move(replace(view)); });
  };
  const tools::Calls calls = built.relocated([](const TensorView& view) { return view; });
  built.supports = calls.supports;
  built.run = calls.run;
  return tensors;
}

std::unique_ptr<tools::Runner> bring_back(std::unique_ptr<tools::Runner> runner,
                                          std::vector<GappedTensor> tensors) {
  if (tensors.empty()) return runner;
  return std::make_unique<BringingBack>(std::move(runner), std::move(tensors));
}

}  // namespace quire::test
