// SPDX-License-Identifier: Apache-2.0
// QUIRE_LOG=plan prints the plan of every op that runs, one line each, to stderr.
#pragma once

#include "quire/plan.h"

namespace quire::ops {

// The variable is read on every call: a test, or a debugger, may set it at any time.
void log_plan(const Plan& plan);

}  // namespace quire::ops
