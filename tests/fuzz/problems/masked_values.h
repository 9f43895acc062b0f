// SPDX-License-Identifier: Apache-2.0
// The one difference from the oracle that docs/numerics.md leaves open: where the value of a key (MLA: its latent) is NaN
// or infinite, rows of its own sequence that do not see the key may have NaN in `out`. LSE and every number stay judged.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "fuzz/problems/edits.h"
#include "tools/device/runner.h"

namespace quire::test {

// For each sequence of the case, whether an edit made a value of one of its keys NaN or infinite; empty where the op has no
// masked keys.
std::vector<bool> sequences_with_open_values(const nlohmann::json& object, const Edits& edits);

// The runner, and after each of its runs, in `out` of open sequences, the oracle's number where the op left NaN. `exact`
// holds the oracle's result already, and both problems outlive the runner.
std::unique_ptr<tools::Runner> accept_masked_values(std::unique_ptr<tools::Runner> runner,
                                                    const nlohmann::json& object,
                                                    const std::vector<bool>& open,
                                                    const tools::Built& subject,
                                                    const tools::Built& exact);

}  // namespace quire::test
