// SPDX-License-Identifier: Apache-2.0
// The attention ops behind one face, for tests of what may reach a result: rows of the cache that can be
// spoiled one by one, and who sees them.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cpu/attention_target.h"
#include "quire/element.h"
#include "reference/mask.h"
#include "reference/ragged.h"
#include "support/attention_inputs.h"

namespace quire::cpu {

// What of a row is spoiled. In the MLA ops values are the latent columns, which are keys as well; the
// rope columns are keys alone.
enum class RowSide : std::uint8_t { key_only, value };

class Subject {
 public:
  virtual ~Subject() = default;
  virtual Results run(const Context& context) = 0;
  virtual bool sees(const reference::Token& token, std::int64_t key) const = 0;
  virtual void spoil(std::int64_t sequence, std::int64_t key, RowSide side, double number) = 0;
  virtual test::TestCache& cache() = 0;
  virtual const test::HostTensor& queries() const = 0;  // [tokens, heads, width]
  // Whether the value of a key that a row does not see may make it NaN.
  virtual bool shares_tiles() const { return true; }

  std::vector<reference::Token> tokens() {
    return reference::tokens_of(cache().row_offsets(), cache().view());
  }
  std::int64_t num_keys(std::int64_t sequence) {
    return reference::num_keys(cache().row_offsets(), cache().view(), sequence);
  }
  // Everything in the page pool that is not a row of a key: other layers, free and unassigned pages, what
  // follows a sequence's end.
  void fill_outside(double number);
};

// Fresh inputs for every run: the MLA ops write rows and rotate queries in place.
using MakeSubject = std::function<std::unique_ptr<Subject>()>;

inline void Subject::fill_outside(double number) {
  const PagedKVCache view = cache().view();
  std::vector<std::pair<std::byte*, std::vector<std::byte>>> rows;
  const std::int64_t row_bytes = view.format().row_bytes;
  const auto save = [&](const KvLayerView& layer) {
    for (std::int64_t sequence = 0; sequence < view.batch(); ++sequence) {
      for (std::int64_t key = 0; key < num_keys(sequence); ++key) {
        for (std::int64_t head = 0; head < view.num_kv_heads(); ++head) {
          std::byte* row = layer.row(sequence, key, head);
          if (row != nullptr) rows.push_back({row, {row, row + row_bytes}});
        }
      }
    }
  };
  save(view.key(test::kTestLayer));
  if (!view.is_mla()) save(view.value(test::kTestLayer));
  for (std::int64_t i = 0; i < view.blocks.numel(); ++i) {
    store_element(view.blocks.data, view.blocks.dtype, i, number);
  }
  for (const auto& [row, bytes] : rows) std::copy(bytes.begin(), bytes.end(), row);
}

class FlashSubject : public Subject {
 public:
  FlashSubject(const test::CacheOptions& options, DType dtype, Mask mask, double softcap = 0.0)
      : inputs_(options, 4, dtype), mask_(std::move(mask)), softcap_(softcap) {}

  Results run(const Context& context) override {
    FlashAttentionArgs args = inputs_.args();
    args.mask = mask_;
    args.softcap = softcap_;
    poison(inputs_.out);
    poison(inputs_.lse);
    flash_attention(args, context);
    return read_results(inputs_.out, inputs_.lse);
  }
  bool sees(const reference::Token& token, std::int64_t key) const override {
    return reference::is_visible(mask_, token, key);
  }
  void spoil(std::int64_t sequence, std::int64_t key, RowSide side, double number) override {
    const PagedKVCache view = inputs_.cache.view();
    const KvLayerView rows =
        side == RowSide::value ? view.value(test::kTestLayer) : view.key(test::kTestLayer);
    for (std::int64_t head = 0; head < view.num_kv_heads(); ++head) {
      for (std::int32_t column = 0; column < rows.width(); ++column) {
        rows.store(sequence, head, key, column, number);
      }
    }
  }
  test::TestCache& cache() override { return inputs_.cache; }
  const test::HostTensor& queries() const override { return inputs_.q; }

 private:
  test::FlashInputs inputs_;
  Mask mask_;
  double softcap_;
};

class LatentSubject : public Subject {
 public:
  LatentSubject(const test::CacheOptions& options, const test::MlaShape& shape, DType dtype)
      : inputs(options, shape, dtype, dtype) {}

  bool sees(const reference::Token& token, std::int64_t key) const override {
    return key <= token.position;
  }
  void spoil(std::int64_t sequence, std::int64_t key, RowSide side, double number) override {
    const PagedKVCache view = inputs.cache.view();
    const std::int64_t cached = view.cache_length(sequence);
    const auto latent = static_cast<std::int32_t>(inputs.shape.latent);
    const auto width = static_cast<std::int32_t>(latent + inputs.shape.rope);
    const std::int32_t first = side == RowSide::value ? 0 : latent;
    for (std::int32_t column = first; column < (side == RowSide::value ? latent : width);
         ++column) {
      if (key < cached) {
        view.key(test::kTestLayer).store(sequence, 0, key, column, number);
      } else {  // the new rows wait, raw, beside the cache
        const auto* offsets = inputs.cache.row_offsets().as<const std::uint32_t>();
        inputs.kv.view().store({offsets[sequence] + key - cached, column}, number);
      }
    }
  }
  test::TestCache& cache() override { return inputs.cache; }
  const test::HostTensor& queries() const override { return inputs.q; }

 protected:
  Results run_on(const std::function<void()>& op) {
    poison(inputs.out);
    poison(inputs.lse);
    op();
    return read_results(inputs.out, inputs.lse);
  }

  test::MlaInputs inputs;
};

class DecodeSubject : public LatentSubject {
 public:
  using LatentSubject::LatentSubject;
  Results run(const Context& context) override {
    return run_on([&] { mla_decode(inputs.decode_args(), context); });
  }
};

class PrefillSubject : public LatentSubject {
 public:
  PrefillSubject(const test::CacheOptions& options, const test::MlaShape& shape, DType dtype,
                 double softcap = 0.0)
      : LatentSubject(options, shape, dtype), softcap_(softcap) {}
  Results run(const Context& context) override {
    MlaPrefillArgs args = inputs.prefill_args(24);
    args.softcap = softcap_;
    return run_on([&] { mla_prefill(args, context); });
  }

 private:
  double softcap_;
};

// Every token is given every third key of its own and later tokens, its first one in any case.
class SparseSubject : public Subject {
 public:
  SparseSubject(const test::CacheOptions& options, const test::MlaShape& shape, DType dtype)
      : inputs_(options, shape, dtype),
        q_(test::HostTensor::random(
            dtype, {inputs_.cache.num_tokens(), shape.heads, shape.latent + shape.rope}, 3)),
        indices_(DType::i32, {inputs_.cache.num_tokens(), kSlots}),
        out_(dtype, {inputs_.cache.num_tokens(), shape.heads, shape.latent}) {
    inputs_.cache.fill_new(test::kTestLayer, 21);
    for (const reference::Token& token : tokens()) {
      std::int64_t slot = 0;
      for (std::int64_t key = 0; key < num_keys(token.sequence); ++key) {
        if (slot < kSlots && sees(token, key)) {
          indices_.view().store({token.index, slot++}, static_cast<double>(key));
        }
      }
      for (; slot < kSlots; ++slot) indices_.view().store({token.index, slot}, -1.0);
    }
  }

  Results run(const Context& context) override {
    poison(out_);
    poison(inputs_.lse);
    sparse_mla(args(), context);
    return read_results(out_, inputs_.lse);
  }
  bool sees(const reference::Token& token, std::int64_t key) const override {
    return key == 0 || (key + token.local) % 3 == 0;
  }
  void spoil(std::int64_t sequence, std::int64_t key, RowSide side, double number) override {
    const auto latent = static_cast<std::int32_t>(inputs_.shape.latent);
    const auto width = static_cast<std::int32_t>(latent + inputs_.shape.rope);
    const std::int32_t first = side == RowSide::value ? 0 : latent;
    for (std::int32_t column = first; column < (side == RowSide::value ? latent : width);
         ++column) {
      inputs_.cache.view().key(test::kTestLayer).store(sequence, 0, key, column, number);
    }
  }
  test::TestCache& cache() override { return inputs_.cache; }
  const test::HostTensor& queries() const override { return q_; }
  bool shares_tiles() const override { return false; }

 protected:
  virtual SparseMlaArgs args() const { return inputs_.sparse_args(q_, indices_, out_); }

 private:
  static constexpr std::int64_t kSlots = 64;
  test::MlaInputs inputs_;
  test::HostTensor q_;
  test::HostTensor indices_;
  test::HostTensor out_;
};

// A second stream beside the chosen keys: four of its rows for every other token, none for the others.
class TwoStreamSubject : public SparseSubject {
 public:
  TwoStreamSubject(const test::CacheOptions& options, const test::MlaShape& shape, DType dtype)
      : SparseSubject(options, shape, dtype),
        extra_(options, shape, dtype),
        extra_indices_(DType::i32, {extra_.cache.num_tokens(), 4}) {
    extra_.cache.fill_new(test::kTestLayer, 22);
    for (std::int64_t token = 0; token < extra_.cache.num_tokens(); ++token) {
      for (std::int64_t slot = 0; slot < 4; ++slot) {
        extra_indices_.view().store({token, slot},
                                    token % 2 == 0 ? -1.0 : static_cast<double>(slot));
      }
    }
  }

 protected:
  SparseMlaArgs args() const override {
    SparseMlaArgs args = SparseSubject::args();
    args.extra = SparseExtra{
        .cache = extra_.cache.view(), .layer = test::kTestLayer, .indices = extra_indices_.view()};
    return args;
  }

 private:
  test::MlaInputs extra_;
  test::HostTensor extra_indices_;
};

}  // namespace quire::cpu
