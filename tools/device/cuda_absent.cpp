// SPDX-License-Identifier: Apache-2.0
// Stands in for the other files of this folder in a build without CUDA.
#include <stdexcept>

#include "tools/device/cuda.h"

namespace quire::tools {
namespace {

[[noreturn]] void throw_absent() {
  throw std::logic_error("why_no_cuda() was not asked");
}

}  // namespace

std::string why_no_cuda() {
  return "this build has no CUDA (nvcc was not found, or QUIRE_CUDA=OFF)";
}

std::unique_ptr<Runner> make_cuda_runner(Built&) {
  throw_absent();
}

std::unique_ptr<demo::Site> make_cuda_site() {
  throw_absent();
}

int run_cuda_bench(const BenchOptions&) {
  throw_absent();
}

}  // namespace quire::tools
