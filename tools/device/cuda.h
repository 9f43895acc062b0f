// SPDX-License-Identifier: Apache-2.0
// What the tool does on a GPU. A build without CUDA has these functions too (cuda_absent.cpp):
// why_no_cuda() says so and the others are not reached.
#pragma once

#include <memory>
#include <string>

#include "tools/bench/bench_command.h"
#include "tools/demo/site.h"
#include "tools/device/runner.h"

namespace quire::tools {

// Empty where the tool can run cases on a GPU.
std::string why_no_cuda();

// The memory's twin on GPU 0: one allocation per buffer, the same bytes, the same alignment.
std::unique_ptr<Runner> make_cuda_runner(Built& built);

// Memory that GPU 0 and the host both see, for the demo.
std::unique_ptr<demo::Site> make_cuda_site();

int run_cuda_bench(const BenchOptions& options);

}  // namespace quire::tools
