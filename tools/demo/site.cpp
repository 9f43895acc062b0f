// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/site.h"

namespace quire::tools::demo {
namespace {

class HostSite final : public Site {
 public:
  Device device() const override { return {}; }
  std::pmr::memory_resource& memory() override { return *std::pmr::new_delete_resource(); }
  void run(const Context& context, std::int64_t,
           const std::function<void(const Context&)>& work) override {
    work(context);
  }
};

}  // namespace

Site& host_site() {
  static HostSite site;
  return site;
}

}  // namespace quire::tools::demo
