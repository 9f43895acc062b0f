// SPDX-License-Identifier: Apache-2.0
#include "reference/linear.h"

#include "reference/projection.h"

namespace quire::reference {

void linear(const LinearArgs& args, Arithmetic arithmetic) {
  Matrix y = project(Projection(args), arithmetic);
  for (std::int64_t token = 0; token < args.out.shape[0]; ++token) {
    for (std::int64_t n = 0; n < args.out.shape[1]; ++n) {
      args.out.store({token, n}, y.at(token, n));
    }
  }
}

}  // namespace quire::reference
