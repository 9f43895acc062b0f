// SPDX-License-Identifier: Apache-2.0
// Where the demo's tensors live and its ops run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory_resource>

#include "quire/context.h"
#include "quire/device.h"

namespace quire::tools::demo {

class Site {
 public:
  virtual ~Site() = default;

  virtual Device device() const = 0;
  // The host may read and write it too, while no op runs: the oracle does, and the float matrices
  // between the ops.
  virtual std::pmr::memory_resource& memory() = 0;
  // `work`, with a stream and scratch where the site has them. Returns when its results are there.
  virtual void run(const Context& context, std::int64_t workspace_bytes,
                   const std::function<void(const Context&)>& work) = 0;
};

Site& host_site();

}  // namespace quire::tools::demo
