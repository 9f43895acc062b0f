// SPDX-License-Identifier: Apache-2.0
// What happens to the rows of a call, where a kernel is made for it. Branches on the call's parameters cost a copy of
// the row's registers each, a tenth of the instructions together.
#pragma once

#include "cuda/hopper/index_rows/params.h"

namespace quire::cuda::hopper {

enum class RowSteps : std::uint8_t {
  any,  // as the parameters say
  turn,
  turn_hadamard,
  turn_interleaved,
  turn_interleaved_hadamard,
};

// Rows with steps other than `any` are turned.
template <RowSteps kSteps> struct KnownSteps {
  static constexpr bool kIsAny = kSteps == RowSteps::any;
  static constexpr bool kMayHaveHadamard =
      kIsAny || kSteps == RowSteps::turn_hadamard || kSteps == RowSteps::turn_interleaved_hadamard;

  __device__ static bool turns(const IndexRowParams& params) {
    return !kIsAny || params.freqs != nullptr;
  }
  __device__ static bool is_interleaved(const IndexRowParams& params) {
    if constexpr (kIsAny) return params.interleaved;
    return kSteps == RowSteps::turn_interleaved || kSteps == RowSteps::turn_interleaved_hadamard;
  }
  __device__ static bool has_hadamard(const IndexRowParams& params) {
    if constexpr (kIsAny) return params.hadamard;
    return kSteps == RowSteps::turn_hadamard || kSteps == RowSteps::turn_interleaved_hadamard;
  }
};

// Of a call whose rows are turned.
inline RowSteps steps_of(const IndexRowParams& params) {
  if (params.interleaved) {
    return params.hadamard ? RowSteps::turn_interleaved_hadamard : RowSteps::turn_interleaved;
  }
  return params.hadamard ? RowSteps::turn_hadamard : RowSteps::turn;
}

}  // namespace quire::cuda::hopper
