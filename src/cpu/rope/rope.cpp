// SPDX-License-Identifier: Apache-2.0
#include "cpu/rope/rope.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "cpu/rms_norm/kernels.h"
#include "cpu/rope/kernels.h"
#include "cpu/rows/new_tokens.h"
#include "quire/paged_kv_operand.h"

namespace quire::cpu {
namespace {

// Every pair once: the sections one after another, and the pairs past the last from section 0.
std::vector<RopeSection> sections_of(const RopeArgs& args) {
  const std::int64_t num_pairs = args.freqs_cis.shape[1] / 2;
  if (!args.position_ids) return {{.first = 0, .count = num_pairs, .position_ids = nullptr}};
  const TensorView& ids = *args.position_ids;
  const auto ids_of = [&](std::int64_t section) {
    return ids.as<const std::uint32_t>() + section * ids.strides[0];
  };
  std::vector<RopeSection> sections;
  std::int64_t first = 0;
  for (std::size_t s = 0; s < args.mrope_sections.size(); ++s) {
    const std::int64_t count = args.mrope_sections[s];
    sections.push_back({first, count, ids_of(static_cast<std::int64_t>(s))});
    first += count;
  }
  sections.push_back({first, num_pairs - first, ids_of(0)});
  return sections;
}

std::vector<float> widen_gamma(const RopeArgs& args, const std::optional<TensorView>& gamma,
                               Target target) {
  if (!gamma) return {};
  std::vector<float> wide(static_cast<std::size_t>(gamma->shape[0]));
  rms_norm_kernels(target).widen_gamma(gamma->as<const std::byte>(), gamma->dtype, gamma->shape[0],
                                       args.weight_offset, wide.data());
  return wide;
}

RopeNorm norm_of(const std::vector<float>& gamma) {
  return {.gamma = gamma.empty() ? nullptr : gamma.data(),
          .columns = static_cast<std::int64_t>(gamma.size())};
}

// All but the keys and the norms.
RopeJob job_of(const RopeArgs& args, const std::vector<RopeSection>& sections) {
  return {.q = args.q.as<const std::byte>(),
          .q_dtype = args.q.dtype,
          .q_token_stride = bytes_for(args.q.dtype, args.q.strides[0]),
          .q_head_stride = bytes_for(args.q.dtype, args.q.strides[1]),
          .out = args.out.as<std::byte>(),
          .out_dtype = args.out.dtype,
          .out_token_stride = bytes_for(args.out.dtype, args.out.strides[0]),
          .out_head_stride = bytes_for(args.out.dtype, args.out.strides[1]),
          .num_heads = args.q.shape[1],
          .head_dim = args.q.shape[2],
          .freqs_cis = args.freqs_cis.as<const std::byte>(),
          .freqs_dtype = args.freqs_cis.dtype,
          .freqs_stride = bytes_for(args.freqs_cis.dtype, args.freqs_cis.strides[0]),
          .rope_dim = args.freqs_cis.shape[1],
          .interleaved = args.interleaved,
          .inverse = args.inverse,
          .sections = sections.data(),
          .num_sections = static_cast<std::int64_t>(sections.size()),
          .ids_stride = args.position_ids ? args.position_ids->strides[1] : 0,
          .key = {},
          .key_first = 0,
          .key_rotated = 0,
          .key_normed = {},
          .num_key_heads = 0,
          .key_head_stride = 0,
          .key_width = 0,
          .q_norm = {},
          .key_norm = {},
          .epsilon = args.epsilon};
}

void add_key(const RopeArgs& args, const PagedKvOperand& key, RopeJob& job) {
  if (!args.rotate_key) return;
  const RowFormat format = key.layout().format;
  job.num_key_heads = key.heads().count;
  job.key_head_stride = key.heads().row_stride_bytes;
  job.key_width = format.width();
  job.key_rotated = args.interleaved ? job.key_width - job.rope_dim : 0;
  job.key_first = std::max(job.key_rotated, job.key_norm.columns);
  job.key = segments_of(format, job.key_first, job.key_rotated + job.rope_dim);
  job.key_normed = segments_of(format, 0, job.key_norm.columns);
}

}  // namespace

void rope(const RopeArgs& args, const Context& context, Target target) {
  const PagedKvOperand key(args.cache.key(args.layer));
  const std::vector<RopeSection> sections = sections_of(args);
  const std::vector<float> q_gamma = widen_gamma(args, args.q_gamma, target);
  const std::vector<float> key_gamma = widen_gamma(args, args.key_gamma, target);
  RopeJob job = job_of(args, sections);
  job.q_norm = norm_of(q_gamma);
  job.key_norm = norm_of(key_gamma);
  add_key(args, key, job);
  const RopeKernels& kernels = rope_kernels(target);
  const WorkerScratch scratch(kernels.scratch_bytes(job), context);
  const std::int64_t token_bytes =
      job.num_heads *
          (bytes_for(job.q_dtype, job.head_dim) + bytes_for(job.out_dtype, job.head_dim)) +
      (args.rotate_key ? key.heads().count * key.layout().format.row_bytes : 0);
  for_token_blocks(NewTokens(args.row_offsets, key), token_bytes, context,
                   [&](std::span<const TokenPlace> places, int worker) {
                     kernels.rotate(job, places.data(), static_cast<std::int64_t>(places.size()),
                                    scratch.of(worker));
                   });
}

}  // namespace quire::cpu
