// SPDX-License-Identifier: Apache-2.0
// What the headers promise about bits: an op's result does not depend on the number of threads, on
// whose threads they are, on the run, or (for a sequence) on the other sequences of the batch.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "cpu/one_sequence.h"
#include "cpu/row_target.h"
#include "cpu/runtime/thread_pool.h"
#include "support/attention_inputs.h"
#include "support/indexer_inputs.h"

namespace quire::cpu {
namespace {

using test::CacheOptions;
using test::FlashInputs;
using test::HostTensor;
using test::IndexerInputs;
using test::MlaInputs;
using test::MlaShape;

using Bytes = std::vector<std::byte>;

// One problem with the memory it works on; made afresh for every run, as some ops change inputs.
struct Problem {
  virtual ~Problem() = default;
  virtual std::string kernel(const Context& context) = 0;
  virtual void run(const Context& context) = 0;
  virtual void run_alone(const Context& context, std::int64_t sequence) = 0;
  virtual std::int64_t batch() const = 0;
  virtual Bytes memory() const = 0;  // everything the op writes
};

void append(Bytes& bytes, const Bytes& more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}

// Long and short sequences, with and without cached keys, an empty one, more than one split.
CacheOptions ragged(const RowFormat& format, std::int64_t heads,
                    std::vector<std::uint32_t> new_tokens = {150, 1, 0, 2, 19, 1}) {
  return {.cache_lengths = {0, 37, 5, 2300, 300, 1024},
          .new_tokens = std::move(new_tokens),
          .row_format = format,
          .page_size = 16,
          .num_kv_heads = heads};
}

struct FlashProblem : Problem {
  FlashProblem(DType dtype, const RowFormat& format) : inputs(ragged(format, 2), 6, dtype) {}
  std::string kernel(const Context& context) override { return supports(args(), context).kernel; }
  void run(const Context& context) override { flash_attention(args(), context); }
  void run_alone(const Context& context, std::int64_t sequence) override {
    const OneSequence one(inputs.cache.row_offsets(), sequence);
    flash_attention(cut(args(), one), context);
  }
  FlashAttentionArgs args() const {
    FlashAttentionArgs args = inputs.args();
    args.batch_invariant = true;
    return args;
  }
  std::int64_t batch() const override { return 6; }
  Bytes memory() const override {
    Bytes bytes = inputs.out.bytes();
    append(bytes, inputs.lse.bytes());
    return bytes;
  }

  FlashInputs inputs;
};

constexpr MlaShape kShape{.heads = 20, .nope = 24, .rope = 8, .latent = 72, .value = 24};

// Rows that the op finishes; positions stay within the frequencies.
struct LatentProblem : Problem {
  explicit LatentProblem(std::vector<std::uint32_t> new_tokens)
      : inputs(
            {.cache_lengths = {9, 0, 3, 33}, .new_tokens = std::move(new_tokens), .page_size = 8},
            kShape, DType::bf16, DType::bf16) {}
  std::int64_t batch() const override { return 4; }
  Bytes memory() const override {
    Bytes bytes = inputs.out.bytes();
    append(bytes, inputs.lse.bytes());
    append(bytes, inputs.q.bytes());
    append(bytes, inputs.cache.block_bytes());
    return bytes;
  }

  MlaInputs inputs;
};

struct DecodeProblem : LatentProblem {
  DecodeProblem() : LatentProblem({2, 8, 0, 1}) {}
  MlaDecodeArgs args() const {
    MlaDecodeArgs args = inputs.decode_args();
    args.batch_invariant = true;
    return args;
  }
  std::string kernel(const Context& context) override { return supports(args(), context).kernel; }
  void run(const Context& context) override { mla_decode(args(), context); }
  void run_alone(const Context& context, std::int64_t sequence) override {
    mla_decode(cut(args(), OneSequence(inputs.cache.row_offsets(), sequence)), context);
  }
};

struct PrefillProblem : LatentProblem {
  PrefillProblem() : LatentProblem({2, 18, 0, 1}) {}
  std::string kernel(const Context& context) override {
    return supports(inputs.prefill_args(24), context).kernel;
  }
  void run(const Context& context) override { mla_prefill(inputs.prefill_args(24), context); }
  void run_alone(const Context& context, std::int64_t sequence) override {
    const OneSequence one(inputs.cache.row_offsets(), sequence);
    MlaPrefillArgs args = cut(inputs.prefill_args(24), one);
    test::ChunkMemory chunks(8, 1, 24);
    args.chunks = chunks.view();
    mla_prefill_plan({.row_offsets = args.row_offsets,
                      .cache = args.cache,
                      .layer = args.layer,
                      .chunks = args.chunks},
                     context);
    mla_prefill(args, context);
  }
};

// Finished rows, so that sequences may be long.
struct LongDecodeProblem : Problem {
  LongDecodeProblem()
      : inputs(ragged(RowFormat::uniform(DType::bf16, 80), 1, {8, 1, 0, 2, 3, 1}), kShape,
               DType::bf16, DType::bf16) {
    inputs.cache.fill_new(test::kTestLayer, 5);
  }
  MlaDecodeArgs args() const {
    MlaDecodeArgs args = inputs.decode_args();
    args.freqs_cis = args.kv_norm_gamma = args.kv = std::nullopt;
    args.batch_invariant = true;
    return args;
  }
  std::string kernel(const Context& context) override { return supports(args(), context).kernel; }
  void run(const Context& context) override { mla_decode(args(), context); }
  void run_alone(const Context& context, std::int64_t sequence) override {
    mla_decode(cut(args(), OneSequence(inputs.cache.row_offsets(), sequence)), context);
  }
  std::int64_t batch() const override { return 6; }
  Bytes memory() const override {
    Bytes bytes = inputs.out.bytes();
    append(bytes, inputs.lse.bytes());
    return bytes;
  }

  MlaInputs inputs;
};

struct IndexerProblem : Problem {
  IndexerProblem()
      : inputs(test::index_options({700, 0, 3, 2900}, {3, 40, 0, 17}, 48), 5, /*top_k=*/100) {}
  std::string kernel(const Context& context) override {
    return supports(inputs.args(), context).kernel;
  }
  void run(const Context& context) override { mla_indexer(inputs.args(), context); }
  void run_alone(const Context& context, std::int64_t sequence) override {
    mla_indexer(cut(inputs.args(), OneSequence(inputs.cache.row_offsets(), sequence)), context);
  }
  std::int64_t batch() const override { return 4; }
  Bytes memory() const override { return inputs.out.bytes(); }

  IndexerInputs inputs;
};

struct SparseProblem : Problem {
  SparseProblem()
      : inputs(ragged(RowFormat::uniform(DType::bf16, 80), 1), kShape, DType::bf16),
        q(HostTensor::random(DType::bf16, {inputs.cache.num_tokens(), 20, 80}, 3)),
        indices(DType::i32, {inputs.cache.num_tokens(), 600}),
        out(DType::bf16, {inputs.cache.num_tokens(), 20, 72}),
        lse(DType::f32, {inputs.cache.num_tokens(), 20}) {
    inputs.cache.fill_new(test::kTestLayer, 21);
    std::uint64_t state = 7;
    for (std::int64_t i = 0; i < indices.view().numel(); ++i) {
      indices.view().as<std::int32_t>()[i] =
          static_cast<std::int32_t>(test::next_uniform(state) * 400.0);  // negative: no key
    }
  }
  SparseMlaArgs args(std::optional<std::int64_t> sequence) const {
    SparseMlaArgs args = inputs.sparse_args(q, indices, out);
    args.lse = lse.view();
    args.extra = SparseExtra{
        .cache = args.cache, .layer = args.layer, .indices = rows_of(indices.view(), 0, q_rows())};
    if (!sequence) return args;
    return cut(args, *sequence, OneSequence(inputs.cache.row_offsets(), *sequence));
  }
  std::int64_t q_rows() const { return inputs.cache.num_tokens(); }
  std::string kernel(const Context& context) override {
    return supports(args(std::nullopt), context).kernel;
  }
  void run(const Context& context) override { sparse_mla(args(std::nullopt), context); }
  void run_alone(const Context& context, std::int64_t sequence) override {
    const OneSequence one(inputs.cache.row_offsets(), sequence);
    SparseMlaArgs args = cut(this->args(std::nullopt), sequence, one);
    sparse_mla(args, context);
  }
  std::int64_t batch() const override { return 6; }
  Bytes memory() const override {
    Bytes bytes = out.bytes();
    append(bytes, lse.bytes());
    return bytes;
  }

  MlaInputs inputs;
  HostTensor q;
  HostTensor indices;
  HostTensor out;
  HostTensor lse;
};

struct NamedProblem {
  std::string op;
  std::function<std::unique_ptr<Problem>()> make;
};

const std::vector<NamedProblem>& problems() {
  static const std::vector<NamedProblem> list{
      {"flash_attention",
       [] {
         return std::make_unique<FlashProblem>(DType::bf16, RowFormat::uniform(DType::bf16, 40));
       }},
      {"flash_attention",
       [] {
         return std::make_unique<FlashProblem>(DType::f32, RowFormat::uniform(DType::f32, 40));
       }},
      {"flash_attention",
       [] {
         return std::make_unique<FlashProblem>(DType::bf16,
                                               RowFormat::scaled(DType::fp8_e4m3, 40, 40));
       }},
      {"mla_decode", [] { return std::make_unique<DecodeProblem>(); }},
      {"mla_decode", [] { return std::make_unique<LongDecodeProblem>(); }},
      {"mla_prefill", [] { return std::make_unique<PrefillProblem>(); }},
      {"mla_indexer", [] { return std::make_unique<IndexerProblem>(); }},
      {"sparse_mla", [] { return std::make_unique<SparseProblem>(); }}};
  return list;
}

class Invariance : public RowTarget {
 protected:
  Bytes run(const NamedProblem& named, const Context& context) const {
    const std::unique_ptr<Problem> problem = named.make();
    EXPECT_EQ(problem->kernel(context), kernel(named.op));
    problem->run(context);
    return problem->memory();
  }
};

INSTANTIATE_TEST_SUITE_P(, Invariance, kEveryTarget, target_name);

// Short calls are shared, or some of them have fewer workers than threads, or none but the caller.
TEST_P(Invariance, ThreadsAndRunsDoNotShow) {
  for (const NamedProblem& named : problems()) {
    SCOPED_TRACE(named.op);
    const Bytes expected = run(named, context(1));
    for (const int num_threads : kThreadCounts) {
      for (const bool is_shared : {true, false}) {
        share_short_calls(is_shared);
        const Bytes found = run(named, context(num_threads));
        EXPECT_TRUE(found == expected) << num_threads << " threads, shared " << is_shared;
      }
      share_short_calls(true);
      EXPECT_TRUE(run(named, context(num_threads)) == expected) << num_threads << " threads, again";
    }
  }
}

// Tasks in reverse order, every second one on a thread of its own.
void run_elsewhere(void* user, std::int64_t tasks, ParallelFor::Task task, void* data) {
  ++*static_cast<int*>(user);
  std::vector<std::thread> threads;
  for (std::int64_t index = tasks - 1; index >= 0; --index) {
    if (index % 2 == 0) {
      threads.emplace_back([=] { task(data, index); });
    } else {
      task(data, index);
    }
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(Invariance, ACallersThreadsDoNotShow) {
  for (const NamedProblem& named : problems()) {
    SCOPED_TRACE(named.op);
    share_short_calls(true);
    int calls = 0;
    Context elsewhere = context(3);
    elsewhere.parallel_for = {.run = run_elsewhere, .user = &calls};
    EXPECT_TRUE(run(named, elsewhere) == run(named, context(1)));
    EXPECT_GT(calls, 0);
  }
}

// Sequence after sequence, each a batch of its own, leaves the memory that the batch leaves.
TEST_P(Invariance, NeighboursDoNotShow) {
  for (const NamedProblem& named : problems()) {
    SCOPED_TRACE(named.op);
    const std::unique_ptr<Problem> problem = named.make();
    for (std::int64_t sequence = 0; sequence < problem->batch(); ++sequence) {
      problem->run_alone(context(2), sequence);
    }
    EXPECT_TRUE(problem->memory() == run(named, context(2)));
  }
}

}  // namespace
}  // namespace quire::cpu
