// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/demo.h"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <iostream>
#include <memory>
#include <stdexcept>

#include "quire/error.h"
#include "tools/demo/deepseek_stack.h"
#include "tools/demo/llama_stack.h"
#include "tools/demo/report.h"
#include "tools/demo/request.h"
#include "tools/demo/server.h"
#include "tools/device_choice.h"
#include "tools/info/machine.h"

namespace quire::tools {
namespace {

using namespace demo;

constexpr int kMaxRequests = 26;  // each has a letter
constexpr TokenId kVocabulary = 64;
// Two pages and a half: the half is copied for each request that finds it cached.
constexpr std::int64_t kSystemPromptLength = 40;
constexpr SchedulerOptions kScheduling{
    .num_pages = 11, .page_size = 16, .token_budget = 48, .max_batch = 4};

// The widths that the GPU's tile kernels are made for: Llama's heads, DeepSeek's rows. On a CPU the
// small ones show as much in less time.
constexpr LlamaSize kWideLlama{.hidden = 256, .heads = 8, .kv_heads = 2, .head_dim = 128};
constexpr LatentSize kWideLatent{.hidden = 256,
                                 .heads = 4,
                                 .q_rank = 64,
                                 .latent = 512,
                                 .nope = 128,
                                 .rope = 64,
                                 .value = 128,
                                 .index_heads = 16,
                                 .index_dim = 128,
                                 .scale_block = 128};

void serve_and_print(Stack& stack, const DemoOptions& options, std::uint64_t seed, Referee& referee,
                     std::ostream& out) {
  print_stack(out, stack);
  const Workload workload =
      make_workload(options.num_requests, kSystemPromptLength, kVocabulary, seed);
  const Timeline timeline(out, options.num_requests);
  timeline.print_head();
  const Summary summary = serve(stack, workload, kScheduling, referee,
                                [&](const StepReport& report) { timeline.print_step(report); });
  print_summary(out, stack, summary, options.verbose);
}

}  // namespace

int run_demo(const DemoOptions& options) {
  return run_demo(options, std::cout);
}

int run_demo(const DemoOptions& options, std::ostream& out) {
  require_device(options.device);
  if (options.num_requests < 1 || options.num_requests > kMaxRequests) {
    throw std::runtime_error(fmt::format("the demo serves 1 to {} requests, not {}", kMaxRequests,
                                         options.num_requests));
  }
  fmt::print(out, "Quire demo: two small models with random weights serve {} requests each.\n",
             options.num_requests);
  fmt::print(out, "machine: {}\n", detect_machine().describe());
  fmt::print(
      out,
      "In the tables a number is prompt tokens read, ● one token generated, · waiting.\n"
      "At most {} tokens a step; freed pages are filled with NaN before they are reused.\n"
      "Pages of requests that are done stay cached, and are found by those that begin alike.\n",
      kScheduling.token_budget);
  const std::unique_ptr<Site> gpu = options.device == "cuda" ? make_cuda_site() : nullptr;
  Site& site = gpu == nullptr ? host_site() : *gpu;
  const TensorsLiveAt there(site);
  Referee referee({.kernel = options.kernel}, options.saboteur, site);
  try {
    LlamaStack llama(kVocabulary, kScheduling.num_pages, kScheduling.page_size, options.seed,
                     gpu ? kWideLlama : LlamaSize{});
    serve_and_print(llama, options, options.seed, referee, out);
    DeepseekStack deepseek(kVocabulary, kScheduling.num_pages, kScheduling.page_size, options.seed,
                           gpu ? kWideLatent : LatentSize{});
    serve_and_print(deepseek, options, options.seed + 1, referee, out);
  } catch (const Error& error) {
    // No op has a reason to refuse what the stacks ask for.
    referee.require(error.op(), error.what());
  }
  print_op_table(out, referee);
  print_verdict(out, referee);
  out.flush();
  return referee.disagreements().empty() ? 0 : 1;
}

}  // namespace quire::tools
