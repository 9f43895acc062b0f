// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/fused_qkv_matmul/launch.h"

#include "cuda/hopper/fused_qkv_matmul/general/launch.h"
#include "cuda/hopper/fused_qkv_matmul/int4/launch.h"

#include "cuda/absent/absent.h"

namespace quire::cuda::hopper {

std::string refuse(const FusedQkvProblem& problem) {
  return refuse_absent(problem.device);
}

std::vector<std::pair<std::string, std::string>> choices(const FusedQkvProblem&) {
  return {};
}

std::string refuse_int4(const FusedQkvProblem& problem) {
  return refuse_absent(problem.device);
}

std::vector<std::pair<std::string, std::string>> int4_choices(const FusedQkvProblem&) {
  return {};
}

void fused_qkv_int4(const FusedQkvArgs&, const Context&) {
  throw_absent("fused_qkv_matmul");
}

std::string refuse_packing(const Weight& weight) {
  return refuse_absent(weight.data.device);
}

Weight packed_form(const Weight&) {
  throw_absent("pack_weight");
}

std::int64_t packed_bytes(const Weight&, bool) {
  return 0;
}

Weight pack_weight(const Weight&, std::byte*, const Context&) {
  throw_absent("pack_weight");
}

std::int64_t tile_workspace_bytes(const FusedQkvProblem&) {
  return 0;
}

std::int64_t int4_workspace_bytes(const FusedQkvProblem&) {
  return 0;
}

std::string refuse_general(const FusedQkvProblem& problem) {
  return refuse_absent(problem.device);
}

std::int64_t general_workspace_bytes(const FusedQkvProblem&) {
  return 0;
}

void fused_qkv_general(const FusedQkvArgs&, const Context&) {
  throw_absent("fused_qkv_matmul");
}

void fused_qkv_matmul(const FusedQkvArgs&, const Context&) {
  throw_absent("fused_qkv_matmul");
}

}  // namespace quire::cuda::hopper
