// SPDX-License-Identifier: Apache-2.0
#include "quire/ops/store.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "reference/store.h"
#include "tools/case/case.h"
#include "tools/case/op_parsers.h"

namespace quire::tools {
namespace {

// `store` and `store_scales` differ in what they write: whole rows, or the scales beside them.
enum class Stored : std::uint8_t { rows, scales };

// What `store` takes beside its rows: V in the same call, places by slots, tensors with gaps.
struct StoreForm {
  bool has_value = false;               // "pair": x is K, and V goes with it
  std::optional<DType> slots{};         // "slots": their type; absent: places by lengths
  std::vector<std::int64_t> skipped{};  // "skipped": tokens whose slots are negative
  std::optional<std::int64_t>
      q_heads{};  // "q_heads": x (and V) are parts of [Q, K, V], with so many heads of Q
};

StoreForm read_form(const Fields& fields, std::int64_t tokens) {
  StoreForm form;
  form.has_value = fields.flag("pair", false);
  if (fields.has("slots")) {
    form.slots = fields.dtype("slots", {DType::i64, DType::i32}, std::nullopt);
    form.skipped = fields.integers("skipped", 0, std::max<std::int64_t>(tokens - 1, 0));
    std::ranges::sort(form.skipped);
  }
  if (fields.has("q_heads")) form.q_heads = fields.integer("q_heads", 0);
  return form;
}

// As an engine would place the new tokens: where the page table has them.
TensorView build_slots(Memory& memory, const StoreForm& form, const PagedKVCache& cache,
                       const Lengths& lengths) {
  const TensorView slots = memory.allocate("slots", *form.slots, {lengths.tokens()});
  std::int64_t index = 0;
  for (std::int64_t b = 0; b < lengths.batch(); ++b) {
    for (std::int64_t token = lengths.cached[static_cast<std::size_t>(b)]; token < lengths.keys(b);
         ++token, ++index) {
      const PageSlot place = cache.pages().find(b, token);
      const bool is_skipped = !place.exists() || std::ranges::binary_search(form.skipped, index);
      const std::int64_t slot =
          is_skipped ? -1 - index : place.page * cache.page_size() + place.slot;
      if (*form.slots == DType::i64) {
        slots.as<std::int64_t>()[index] = slot;
      } else {
        slots.as<std::int32_t>()[index] = static_cast<std::int32_t>(slot);
      }
    }
  }
  return slots;
}

class StoreCase final : public OpCase {
 public:
  StoreCase(const Fields& fields, Stored stored)
      : stored_(stored),
        lengths_(read_lengths(fields)),
        cache_(read_cache(fields, lengths_, /*is_mla=*/false)),
        side_(fields.choice("side", {"key", "value"}, "key") == "key" ? KvSide::key
                                                                      : KvSide::value),
        x_dtype_(fields.dtype(
            "x_dtype",
            {DType::f32, DType::f16, DType::bf16, DType::fp8_e4m3, DType::fp8_e5m2, DType::i8},
            DType::bf16)),
        amplitude_(fields.number("amplitude", 1.0)) {
    if (stored_ == Stored::scales && !cache_.row_format.uses_plane()) {
      fields.fail("'cache' must have a plane of scales");
    }
    if (stored_ == Stored::rows) form_ = read_form(fields, lengths_.tokens());
    if (form_.has_value && (cache_.is_mla || side_ == KvSide::value)) {
      fields.fail("'pair' takes a cache with values, and no 'side'");
    }
    if (form_.slots && cache_.scale_kind == ScaleKind::own_table) {
      fields.fail("'slots' take no scales with a page table of their own");
    }
  }

  Built build(Layout layout, std::uint64_t seed, std::int64_t max_bytes) const override {
    Built built(layout, max_bytes);
    const CacheSpec cache =
        layout == Layout::contiguous ? cache_.contiguous_twin(lengths_) : cache_;
    const Contents contents = stored_ == Stored::rows ? Contents::cached : Contents::cached_and_new;
    const TensorView row_offsets = build_row_offsets(built.memory, lengths_);
    const PagedKVCache view = build_cache(built.memory, cache, lengths_, contents, seed);
    built.written_rows({.cache = view,
                        .layer = cache.layer,
                        .lengths = lengths_,
                        .key = side_ == KvSide::key,
                        .value = side_ == KvSide::value || form_.has_value,
                        .skipped = form_.skipped});
    if (stored_ == Stored::scales) {
      bind_scales(built, seed, view, row_offsets);
    } else {
      bind_rows(built, seed, view, row_offsets);
    }
    return built;
  }

  double flops() const override { return 0.0; }
  bool only_moves_data() const override { return true; }
  double bytes() const override {
    const double tokens = static_cast<double>(lengths_.tokens() * cache_.kv_heads);
    if (stored_ == Stored::scales) {
      return tokens * static_cast<double>(cache_.row_format.plane_slots()) * 2.0 * bits(x_dtype_) /
             8.0;
    }
    const double row = static_cast<double>(cache_.width()) * bits(x_dtype_) / 8.0 +
                       static_cast<double>(cache_.row_bytes());
    const double slots =
        form_.slots ? static_cast<double>(lengths_.tokens()) * bits(*form_.slots) / 8.0 : 0.0;
    return (form_.has_value ? 2.0 : 1.0) * tokens * row + slots;
  }

 private:
  void bind_scales(Built& built, std::uint64_t seed, const PagedKVCache& view,
                   const TensorView& row_offsets) const {
    const StoreScalesArgs args{
        .scales = build_tensor(
            built.memory, seed, "scales", x_dtype_,
            {lengths_.tokens(), cache_.kv_heads, cache_.row_format.plane_slots()}, 0.1, 1.0),
        .row_offsets = row_offsets,
        .cache = view,
        .layer = layer_of(view),
        .side = side_};
    bind(
        built, args, [](const auto& a, const Context& c) { store_scales(a, c); },
        [](const StoreScalesArgs& a) { reference::store_scales(a); });
  }

  void bind_rows(Built& built, std::uint64_t seed, const PagedKVCache& view,
                 const TensorView& row_offsets) const {
    StoreArgs args{
        .x = {}, .row_offsets = row_offsets, .cache = view, .layer = layer_of(view), .side = side_};
    add_rows(built.memory, seed, args);
    if (form_.slots) {
      args.slots = build_slots(built.memory, form_, view, lengths_);
      args.row_offsets = {};
      args.cache.cache_lengths = {};
      args.cache.page_table = {};
    }
    bind(
        built, args, [](const auto& a, const Context& c) { store(a, c); },
        [](const StoreArgs& a) { reference::store(a); });
  }

  // Tensors of their own, or views of one that a projection wrote.
  void add_rows(Memory& memory, std::uint64_t seed, StoreArgs& args) const {
    const std::int64_t tokens = lengths_.tokens();
    const std::int64_t heads = cache_.kv_heads;
    const auto tensor = [&](const char* name, std::int64_t count) {
      return build_tensor(memory, seed, name, x_dtype_, {tokens, count, cache_.width()},
                          amplitude_);
    };
    if (!form_.q_heads) {
      args.x = tensor("x", heads);
      if (form_.has_value) args.value = tensor("value", heads);
      return;
    }
    const auto heads_from = [&](TensorView view, std::int64_t first) {
      // Without tokens there is no byte behind the first.
      const std::int64_t from = view.shape[0] == 0 ? 0 : first;
      view.data = view.as<std::byte>() + bytes_for(view.dtype, from * view.strides[1]);
      view.shape[1] = heads;
      return view;
    };
    const TensorView joined = tensor("qkv", *form_.q_heads + 2 * heads);
    args.x = heads_from(joined, *form_.q_heads);
    if (form_.has_value) args.value = heads_from(joined, *form_.q_heads + heads);
  }

  // The twin without pages has one layer.
  std::int64_t layer_of(const PagedKVCache& view) const {
    return view.num_layers() == cache_.layers ? cache_.layer : 0;
  }

  Stored stored_;
  Lengths lengths_;
  CacheSpec cache_;
  KvSide side_;
  DType x_dtype_;
  double amplitude_;
  StoreForm form_{};
};

}  // namespace

std::unique_ptr<OpCase> parse_store(const Fields& fields) {
  return std::make_unique<StoreCase>(fields, Stored::rows);
}

std::unique_ptr<OpCase> parse_store_scales(const Fields& fields) {
  return std::make_unique<StoreCase>(fields, Stored::scales);
}

}  // namespace quire::tools
