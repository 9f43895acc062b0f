// SPDX-License-Identifier: Apache-2.0
// What a case file may ask for; cases/README.md has the same numbers for its writers. Past a limit there is an error
// that names file, case and key or tensor, before anything is allocated. The sizes are far above every problem of
// today's models, and small enough that products of three fit 64 bits.
#pragma once

#include <cstdint>

namespace quire::tools {

inline constexpr std::int64_t kMaxFileBytes = std::int64_t{4} << 20;
inline constexpr int kMaxNesting = 16;                  // of lists and objects in a file
inline constexpr std::int64_t kMaxCases = 4096;         // of a file
inline constexpr std::int64_t kMaxListEntries = 16384;  // sequences of a batch, too

inline constexpr std::int64_t kMaxSize = std::int64_t{1} << 20;          // a dimension or count
inline constexpr std::int64_t kMaxLength = (std::int64_t{1} << 31) - 1;  // keys of a sequence
inline constexpr std::int64_t kMaxTokens = std::int64_t{1} << 24;        // new tokens of a batch
inline constexpr std::int64_t kMaxId = (std::int64_t{1} << 32) - 1;      // page ids are u32

inline constexpr std::int64_t kMaxMaskParts = 16;
// Pairs of a query and a key that are looked at one by one, times the parts of the mask.
inline constexpr std::int64_t kMaxMaskSteps = std::int64_t{1} << 30;

// Addresses that a deferred problem may reserve; its bytes are never on the host.
inline constexpr std::int64_t kMaxDeferredBytes = std::int64_t{1} << 40;

// Host memory of one built problem: half of the machine's. `quire check` holds several copies of a problem at a time
// and allows each its part.
std::int64_t max_case_bytes();
std::int64_t max_checked_case_bytes();

}  // namespace quire::tools
