// SPDX-License-Identifier: Apache-2.0
// What runs on which GPU: planners asked about GPUs that are not there, so it needs none.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "cuda/any/index_rows/params.h"
#include "cuda/any/store/params.h"
#include "cuda/common/runtime/device_facts.h"
#include "cuda/common/runtime/launch.h"
#include "cuda/llama_attention.h"
#include "fuzz/targets/hostile.h"
#include "fuzz/targets/served_calls.h"
#include "quire/quire.h"
#include "support/cache_builder.h"
#include "support/host_tensor.h"

namespace quire::cuda {
namespace {

constexpr int kNewDriver = 99000;
constexpr int kFirst = 1000;  // index of the first GPU that is not there

struct Gpu {
  const char* name;
  ComputeCapability capability;
  int num_sms;
  std::int64_t shared_bytes;
};

constexpr Gpu kTuring{"T4", {7, 5}, 40, 64 << 10};
constexpr Gpu kHopper{"H200", {9, 0}, 132, 227 << 10};
constexpr Gpu kOthers[] = {
    {"A100", {8, 0}, 108, 163 << 10},     {"A10", {8, 6}, 72, 99 << 10},
    {"L40", {8, 9}, 142, 99 << 10},       {"B200", {10, 0}, 148, 227 << 10},
    {"RTX 5090", {12, 0}, 170, 99 << 10},
};

DeviceFacts facts_of(const Gpu& gpu, int driver = kNewDriver) {
  return {.name = gpu.name,
          .compute_major = gpu.capability.major,
          .compute_minor = gpu.capability.minor,
          .num_sms = gpu.num_sms,
          .shared_bytes_per_block = gpu.shared_bytes,
          .driver_cuda = driver};
}

// Another index each time: ops remember plans by problem, and the index is part of it.
class Pretended {
 public:
  explicit Pretended(const Gpu& gpu, int driver = kNewDriver)
      : index_(next_index()), device_(index_, facts_of(gpu, driver)) {}

  Device device() const { return {.kind = DeviceKind::cuda, .index = index_}; }

 private:
  static int next_index() {
    static int next = kFirst;
    return next++;
  }

  int index_;
  PretendedDevice device_;
};

// A problem of each op that has kernels in sm90/, as those take it.

FlashAttentionProblem flash_decode() {
  return test::llama_attention({.tokens = 16, .batch = 16, .max_new_tokens = 1}, 16);
}

FlashAttentionProblem flash_prefill() {
  return test::llama_attention({.tokens = 4096, .batch = 2, .max_new_tokens = 2048}, 64);
}

FusedQkvProblem projection() {
  return {.ragged = {.tokens = 64, .batch = 64},
          .cache = {.row_format = RowFormat::uniform(DType::bf16, 128),
                    .num_pages = 64,
                    .num_layers = 1,
                    .page_size = 64,
                    .num_kv_heads = 8,
                    .max_pages = 16},
          .hidden = 4096,
          .q_dim = 4096,
          .alignment = 128};
}

CacheShape latent_cache() {
  return {.row_format = RowFormat::uniform(DType::bf16, 576),
          .num_pages = 1024,
          .num_layers = 1,
          .page_size = 64,
          .num_kv_heads = 1,
          .max_pages = 64,
          .is_mla = true};
}

MlaDecodeProblem latent_decode() {
  MlaDecodeProblem problem;
  problem.ragged = {.tokens = 4, .batch = 4, .max_new_tokens = 1};
  problem.cache = latent_cache();
  problem.heads = 128;
  problem.latent_dim = 512;
  problem.rope_dim = 64;
  problem.value_dim = 512;
  problem.mask = Mask::causal().summary();
  problem.finishes_rows = false;
  problem.alignment = 128;
  return problem;
}

MlaPrefillProblem latent_prefill(std::int64_t decode_tokens) {
  MlaPrefillProblem problem;
  problem.ragged = {.tokens = 4096, .batch = 1};
  problem.cache = latent_cache();
  problem.heads = 128;
  problem.latent_dim = 512;
  problem.nope_dim = 128;
  problem.rope_dim = 64;
  problem.value_dim = 128;
  problem.alignment = 16;
  problem.cache_alignment = 128;
  problem.buffer_tokens = 16384;
  problem.max_chunks = 1;
  problem.decode_tokens = decode_tokens;
  problem.mask = Mask::causal().summary();
  return problem;
}

MlaIndexerProblem indexer() {
  return {.ragged = {.tokens = 64, .batch = 64},
          .cache = {.row_format = RowFormat::scaled(DType::fp8_e4m3, 128, 128),
                    .page_size = 64,
                    .max_pages = 128},
          .heads = 64,
          .head_dim = 128,
          .top_k = 2048,
          .mask = Mask::causal().summary(),
          .alignment = 128,
          .has_dense_scales = true};
}

SparseMlaProblem sparse() {
  return {.ragged = {.tokens = 128, .batch = 128},
          .cache = {.row_format = RowFormat::mla_fp8_block()},
          .heads = 64,
          .latent_dim = 512,
          .rope_dim = 64,
          .top_k = 2048,
          .q_dtype = DType::bf16,
          .alignment = 16};
}

struct Asked {
  std::string any;   // the kernel for every GPU
  std::string sm90;  // the one that stands before it on Hopper; empty: none
  std::function<Plan(Device)> plan;
};

template <typename Problem>
Asked asked(const std::string& any, const std::string& sm90, Problem problem) {
  return {any, sm90, [problem](Device device) {
            Problem there = problem;
            there.device = device;
            return quire::plan(there);
          }};
}

std::vector<Asked> every_op() {
  const StoreProblem scales{.scales_only = true};
  return {
      asked("flash_attention", "decode/flash_attention", flash_decode()),
      asked("flash_attention", "flash_attention", flash_prefill()),
      asked("fused_qkv_matmul", "fused_qkv_matmul", projection()),
      asked("linear", "linear",
            LinearProblem{.tokens = 64, .hidden = 4096, .columns = 4096, .alignment = 16}),
      asked("mla_decode", "mla_decode", latent_decode()),
      asked("mla_prefill", "mla_prefill", latent_prefill(0)),
      asked("mla_prefill", "mla_prefill", latent_prefill(1)),
      asked("mla_indexer", "mla_indexer", indexer()),
      asked("sparse_mla", "sparse_mla", sparse()),
      asked("compress_keys", "", CompressKeysProblem{}),
      asked("copy_pages", "", CopyPagesProblem{}),
      asked("merge_states", "", MergeStatesProblem{}),
      asked("mla_prefill_plan", "", MlaPrefillPlanProblem{}),
      asked("quantize_fp8", "", QuantizeFp8Problem{}),
      asked("quantize_index_queries", "", QuantizeIndexQueriesProblem{}),
      asked("remap_sparse_indices", "", RemapSparseIndicesProblem{}),
      asked("rms_norm", "", RmsNormProblem{}),
      asked("rope", "", RopeProblem{}),
      asked("row_offsets", "", RowOffsetsProblem{}),
      asked("store", "", StoreProblem{}),
      asked("store_scales", "", scales),
      asked("store_index_keys", "", StoreIndexKeysProblem{}),
  };
}

std::string reason_of(const Plan& plan, const std::string& kernel) {
  for (const Refusal& refusal : plan.refusals) {
    if (refusal.kernel == kernel) return refusal.reason;
  }
  return "(not refused)";
}

TEST(EveryGpu, FromAmpereOnTakesEveryOp) {
  for (const Gpu& gpu : kOthers) {
    const Pretended pretended(gpu);
    for (const Asked& op : every_op()) {
      const Plan plan = op.plan(pretended.device());
      EXPECT_EQ(plan.kernel, "cuda/any/" + op.any) << gpu.name << ": " << plan.describe();
      if (op.sm90.empty()) continue;
      const std::string wanted = to_string(pretended.device()) + " has compute capability " +
                                 std::to_string(gpu.capability.major) + "." +
                                 std::to_string(gpu.capability.minor) + ", not 9.0";
      if (runs_sm90(kHopper.capability)) {
        EXPECT_EQ(reason_of(plan, "cuda/sm90/" + op.sm90), wanted);
      }
    }
  }
}

TEST(EveryGpu, HopperHasKernelsOfItsOwn) {
  const Pretended pretended(kHopper);
  const bool has_code = runs_sm90(kHopper.capability);
  for (const Asked& op : every_op()) {
    const Plan plan = op.plan(pretended.device());
    const bool is_fast = has_code && !op.sm90.empty();
    EXPECT_EQ(plan.kernel, is_fast ? "cuda/sm90/" + op.sm90 : "cuda/any/" + op.any)
        << plan.describe();
  }
}

template <typename Args> void expect_sm90(Args args, const std::string& kernel) {
  const Pretended pretended(kHopper);
  test::move_to_gpu(args, pretended.device().index);
  const Plan plan = supports(args);
  EXPECT_EQ(plan.kernel, "cuda/sm90/" + kernel) << plan.describe();
}

// What the fuzzer of planners begins with: calls that the kernels of sm90/ take.
TEST(EveryGpu, ServedCallsHaveHopperKernels) {
  if (!runs_sm90(kHopper.capability)) GTEST_SKIP() << "built without sm90/";
  const RowFormat latents = RowFormat::uniform(DType::bf16, 576);
  const RowFormat codes = RowFormat::mla_fp8_block();
  expect_sm90(test::served_flash_attention(test::kDecode, DType::bf16, 128),
              "decode/flash_attention");
  expect_sm90(test::served_flash_attention(test::kDecode, DType::fp8_e4m3, 128),
              "decode/flash_attention");
  expect_sm90(test::served_flash_attention(test::kPrefill, DType::bf16, 256), "flash_attention");
  for (const test::ServedSize size : {test::kDecode, test::kPrefill}) {
    expect_sm90(test::served_projection(size), "fused_qkv_matmul");
    expect_sm90(test::served_linear(size), "linear");
    expect_sm90(test::served_mla_prefill(size), "mla_prefill");
    expect_sm90(test::served_indexer(size), "mla_indexer");
    expect_sm90(test::served_sparse_mla(size, latents), "sparse_mla");
    expect_sm90(test::served_sparse_mla(size, codes), "sparse_mla");
  }
  expect_sm90(test::served_mla_decode(test::kDecode, latents), "mla_decode");
  expect_sm90(test::served_mla_decode(test::kDecode, codes), "fp8/mla_decode");
}

TEST(EveryGpu, BeforeAmpereIsRefusedWithWhatWasFound) {
  const Pretended pretended(kTuring);
  const std::string found = to_string(pretended.device()) + " has compute capability 7.5, not ";
  for (const Asked& op : every_op()) {
    const Plan plan = op.plan(pretended.device());
    EXPECT_FALSE(plan.supported()) << plan.describe();
    EXPECT_EQ(reason_of(plan, "cuda/any/" + op.any), found + "8.0 or newer");
    if (!op.sm90.empty() && runs_sm90(kHopper.capability)) {
      EXPECT_EQ(reason_of(plan, "cuda/sm90/" + op.sm90), found + "9.0");
    }
  }
}

TEST(EveryGpu, DriverMustKnowThePtxWhereThereIsNoMachineCode) {
  constexpr int kOldDriver = 12020;
  for (const Gpu& gpu : kOthers) {
    const Pretended pretended(gpu, kOldDriver);
    const std::string reason = refuse_unless_sm80(pretended.device());
    EXPECT_TRUE(reason.starts_with("the driver of " + to_string(pretended.device()) +
                                   " runs CUDA 12.2, not "))
        << reason;
  }
  const Pretended hopper(kHopper, kOldDriver);
  if (runs_sm90(kHopper.capability)) {
    EXPECT_EQ(refuse_unless_sm80(hopper.device()), "");
  }
}

TEST(EveryGpu, IsAskedForWhatItHas) {
  const Pretended pretended(kOthers[1]);
  const int index = pretended.device().index;
  EXPECT_EQ(num_sms(index), 72);
  EXPECT_EQ(compute_capability(index), (ComputeCapability{8, 6}));
  EXPECT_EQ(device_facts(index).name, "A10");
}

// Inside of an op of any/: rows that TMA moves on Hopper go through another kernel elsewhere.

TEST(EveryGpu, RowsAreStagedForTmaOnHopperAlone) {
  const test::TestCache cache({.cache_lengths = {3},
                               .new_tokens = {5},
                               .row_format = RowFormat::mla_fp8_block(),
                               .num_kv_heads = 1,
                               .is_mla = true});
  const test::HostTensor x = test::HostTensor::random(DType::bf16, {5, 1, 576}, 1);
  const any::store::StoreParams params{.x = x.view().as<const std::byte>(),
                                       .x_dtype = DType::bf16,
                                       .token_stride_bytes = 576 * 2,
                                       .head_stride_bytes = 576 * 2,
                                       .last_stride = 1,
                                       .tokens = 5,
                                       .row_offsets = cache.row_offsets().as<const std::uint32_t>(),
                                       .view = cache.view().key(0),
                                       .scales_are_static = false};
  const auto staged_bytes = [&](const Gpu& gpu) {
    const auto layout = any::store::code_layout(params, gpu.capability);
    return layout ? layout->staged_row_bytes : -1;
  };
  for (const Gpu& gpu : kOthers) EXPECT_EQ(staged_bytes(gpu), 0) << gpu.name;
  if (runs_sm90(kHopper.capability)) {
    EXPECT_EQ(staged_bytes(kHopper), 656);
  }
}

TEST(EveryGpu, IndexKeysAreStagedForTmaOnHopperAlone) {
  alignas(16) static std::byte memory[16];
  const any::index_rows::IndexRowParams params{.x = memory,
                                               .x_dtype = DType::bf16,
                                               .token_bytes = 256,
                                               .head_bytes = 0,
                                               .tokens = 1,
                                               .heads = Divisor(1),
                                               .columns = 128,
                                               .row_offsets = nullptr,
                                               .cache_lengths = nullptr,
                                               .batch = 1,
                                               .norm_weight = {},
                                               .norm_bias = {},
                                               .epsilon = 0.0f,
                                               .freqs = nullptr,
                                               .freqs_dtype = DType::f32,
                                               .freqs_stride = 0,
                                               .freqs_size = 0,
                                               .max_pos = 0,
                                               .rope_dim = 0,
                                               .interleaved = false,
                                               .hadamard = true,
                                               .hadamard_factor = 1.0f,
                                               .rounding = ScaleRounding::exact};
  any::index_rows::KeyTarget target{
      .view = {}, .codes_offset = 0, .scale_offset = 128, .page_size = Divisor(64)};
  target.view.data = memory;
  target.view.token_stride_bytes = 144;
  target.view.page_stride_bytes = 144 * 64;
  ASSERT_TRUE(takes_vectors(params) && takes_vectors(target));
  for (const Gpu& gpu : kOthers) {
    EXPECT_FALSE(takes_stages(params, target, gpu.capability)) << gpu.name;
  }
  EXPECT_EQ(takes_stages(params, target, kHopper.capability), runs_sm90(kHopper.capability));
  target.codes_offset = 4;  // not in vectors: nowhere
  EXPECT_FALSE(takes_stages(params, target, kHopper.capability));
}

TEST(EveryGpu, HasTheSharedMemoryThatAnyAsksFor) {
  for (const Gpu& gpu : kOthers) {
    EXPECT_LE(static_cast<std::int64_t>(kSharedBytesOfEveryGpu), gpu.shared_bytes) << gpu.name;
  }
}

}  // namespace
}  // namespace quire::cuda
