// SPDX-License-Identifier: Apache-2.0
#include "fuzz/problems/masked_values.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace quire::test {
namespace {

using nlohmann::json;
using tools::CacheSpec;
using tools::Fields;
using tools::Lengths;

// Attention over whole sequences; sparse_mla has no masked keys.
bool has_masked_keys(const std::string& op) {
  return op == "flash_attention" || op == "mla_decode" || op == "mla_prefill";
}

struct Values {
  std::string op;
  Lengths lengths{};
  CacheSpec cache{};
  bool shares_pages = false;     // a row may be a key of every sequence
  bool rounds_to_f16 = false;    // latents and values, on the way to the attention
  bool rows_are_narrow = false;  // new rows are rounded to less than f32's range
  std::vector<bool> open{};

  void open_all() { open.assign(open.size(), true); }
};

// Whether values may be infinite or NaN because of an edit's number or factor.
bool may_open(double edit, bool is_narrow) {
  return !std::isfinite(edit) || (is_narrow && std::abs(edit) > 1.0);
}

bool has_range_of_f32(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16;
}

void open_by(const RowEdit& edit, Values& values) {
  const tools::RowPlace& place = edit.place;
  if (!may_open(edit.value, values.rounds_to_f16)) return;
  // Factors are finite: only a latent row's, rounded to f16, leave values infinite.
  if (edit.column < 0) {
    values.open_all();
    return;
  }
  // Of a latent row, the rope columns belong to the key alone.
  const bool is_value =
      values.cache.is_mla ? edit.column < values.cache.latent : place.side == tools::Side::value;
  if (!is_value || !values.cache.is_assigned(place.sequence, place.token)) return;
  values.open[static_cast<std::size_t>(place.sequence)] = true;
  if (values.shares_pages) values.open_all();
}

void open_by(const TensorEdit& edit, Values& values) {
  const bool is_narrow =
      values.rounds_to_f16 || (edit.tensor == "kv_norm_gamma" && values.rows_are_narrow);
  if (!may_open(edit.value, is_narrow)) return;
  // Every new row's gamma; in prefill, what makes the values of all keys.
  if (edit.tensor == "kv_norm_gamma") values.open_all();
  if (edit.tensor == "kv_b_proj" && values.op == "mla_prefill") values.open_all();
  if (edit.tensor == "kv" && edit.element < 0) values.open_all();
  if (edit.tensor != "kv" || edit.element < 0 ||
      edit.element % values.cache.width() >= values.cache.latent)
    return;
  std::int64_t token = edit.element / values.cache.width();
  for (std::size_t b = 0; b < values.open.size(); token -= values.lengths.added[b++]) {
    if (token >= 0 && token < values.lengths.added[b]) values.open[b] = true;
  }
}

class AcceptingMaskedValues final : public tools::Runner {
 public:
  AcceptingMaskedValues(std::unique_ptr<tools::Runner> runner, std::vector<bool> tokens,
                        const TensorView& out, const TensorView& exact)
      : runner_(std::move(runner)), tokens_(std::move(tokens)), out_(out), exact_(exact) {}

  Plan supports(const Context& context) override { return runner_->supports(context); }
  void run(const Context& context, std::vector<std::string>& faults) override {
    runner_->run(context, faults);
    accept();
  }
  bool replay(const Context& context, std::vector<std::string>& faults) override {
    const bool is_replayed = runner_->replay(context, faults);
    if (is_replayed) accept();
    return is_replayed;
  }

 private:
  void accept() {
    for (std::int64_t token = 0; token < out_.shape[0]; ++token) {
      if (!tokens_[static_cast<std::size_t>(token)]) continue;
      for (std::int64_t head = 0; head < out_.shape[1]; ++head) {
        for (std::int64_t column = 0; column < out_.shape[2]; ++column) {
          const double wanted = exact_.load({token, head, column});
          const bool is_nan = std::isnan(out_.load({token, head, column}));
          if (is_nan && !std::isnan(wanted)) out_.store({token, head, column}, wanted);
        }
      }
    }
  }

  std::unique_ptr<tools::Runner> runner_;
  std::vector<bool> tokens_;
  TensorView out_;
  TensorView exact_;
};

const TensorView& out_of(const tools::Built& built) {
  return std::ranges::find(built.outputs, "out", &tools::Output::name)->view;
}

}  // namespace

std::vector<bool> sequences_with_open_values(const json& object, const Edits& edits) {
  const Fields fields(object, "masked values");
  Values values{.op = object["op"]};
  if (!has_masked_keys(values.op)) return {};
  values.lengths = tools::read_lengths_and_keys(fields);
  values.open.resize(values.lengths.added.size(), false);
  const bool is_mla = object["cache"].contains("latent") && !object["cache"].contains("mla");
  values.cache = tools::read_cache(fields, values.lengths, is_mla);
  values.rounds_to_f16 = values.op == "mla_prefill" && object["q_dtype"] == "f16";
  const RowPart& part = values.cache.row_format.parts[0];
  values.rows_are_narrow =
      object.value("gamma_dtype", "bf16") == "f16" ||
      (part.scale_source == ScaleSource::none && !has_range_of_f32(part.dtype));
  values.shares_pages = object.contains("shared_prefix_pages");
  double factor = 1.0;
  for (const RowEdit& edit : edits.rows) {
    if (edit.column < 0) factor = std::max(factor, std::abs(edit.value));
  }
  constexpr double kLargestF16 = 65504.0;
  for (RowEdit edit : edits.rows) {
    // A number that was set, times the factor of all rows, may be more than f16 holds.
    const bool overflows = part.dtype == DType::f16 && std::abs(edit.value) * factor > kLargestF16;
    if (edit.column >= 0 && overflows) edit.value = std::numeric_limits<double>::infinity();
    open_by(edit, values);
  }
  for (const TensorEdit& edit : edits.tensors) open_by(edit, values);
  return values.open;
}

std::unique_ptr<tools::Runner> accept_masked_values(std::unique_ptr<tools::Runner> runner,
                                                    const json& object,
                                                    const std::vector<bool>& open,
                                                    const tools::Built& subject,
                                                    const tools::Built& exact) {
  const Lengths lengths = tools::read_lengths_and_keys(Fields(object, "masked values"));
  std::vector<bool> tokens;
  for (std::size_t b = 0; b < open.size(); ++b) {
    tokens.insert(tokens.end(), static_cast<std::size_t>(lengths.added[b]), open[b]);
  }
  return std::make_unique<AcceptingMaskedValues>(std::move(runner), std::move(tokens),
                                                 out_of(subject), out_of(exact));
}

}  // namespace quire::test
