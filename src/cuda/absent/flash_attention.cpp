// SPDX-License-Identifier: Apache-2.0
#include "cuda/absent/absent.h"
#include "cuda/hopper/flash_attention/cascade/launch.h"
#include "cuda/hopper/flash_attention/decode/launch.h"
#include "cuda/hopper/flash_attention/general/launch.h"
#include "cuda/hopper/flash_attention/prefill/launch.h"

namespace quire::cuda::hopper {

std::string refuse_general(const FlashAttentionProblem& problem) {
  return refuse_absent(problem.device);
}

void flash_attention_general(const FlashAttentionArgs&, const Context&) {
  throw_absent("flash_attention");
}

std::string refuse_cascade(const FlashAttentionProblem& problem) {
  return refuse_absent(problem.device);
}

std::int64_t cascade_workspace_bytes(const FlashAttentionProblem&) {
  return 0;
}

std::vector<std::pair<std::string, std::string>> cascade_choices(const FlashAttentionProblem&) {
  return {};
}

void flash_attention_cascade(const FlashAttentionArgs&, const Context&) {
  throw_absent("flash_attention");
}

std::string refuse_decode(const FlashAttentionProblem& problem) {
  return refuse_absent(problem.device);
}

std::int64_t decode_workspace_bytes(const FlashAttentionProblem&) {
  return 0;
}

std::vector<std::pair<std::string, std::string>> decode_choices(const FlashAttentionProblem&) {
  return {};
}

void flash_attention_decode(const FlashAttentionArgs&, const Context&) {
  throw_absent("flash_attention");
}

std::string refuse_tiles(const FlashAttentionProblem& problem) {
  return refuse_absent(problem.device);
}

std::int64_t prefill_workspace_bytes(const FlashAttentionProblem&) {
  return 0;
}

std::vector<std::pair<std::string, std::string>> prefill_choices(const FlashAttentionProblem&) {
  return {};
}

void flash_attention_prefill(const FlashAttentionArgs&, const Context&) {
  throw_absent("flash_attention");
}

}  // namespace quire::cuda::hopper
