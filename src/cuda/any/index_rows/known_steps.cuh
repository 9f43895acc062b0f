// SPDX-License-Identifier: Apache-2.0
// What happens to the rows of a call, where a kernel is made for it. Branches on the call's parameters cost a copy of
// the row's registers each, a tenth of the instructions together.
#pragma once

#include "cuda/any/index_rows/params.h"

namespace quire::cuda::any::index_rows {

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
  static constexpr bool kHasHadamard =  // known when compiled
      kSteps == RowSteps::turn_hadamard || kSteps == RowSteps::turn_interleaved_hadamard;

  static constexpr bool kScalesArePowers = false;  // of two, known when compiled
  __device__ static bool turns(const IndexRowParams& params) {
    return !kIsAny || params.freqs != nullptr;
  }
  __device__ static bool is_interleaved(const IndexRowParams& params) {
    if constexpr (kIsAny) return params.interleaved;
    return kSteps == RowSteps::turn_interleaved || kSteps == RowSteps::turn_interleaved_hadamard;
  }
  __device__ static bool has_hadamard(const IndexRowParams& params) {
    if constexpr (kIsAny) return params.hadamard;
    return kHasHadamard;
  }
};

// Keys with steps other than `any` also have a norm, angles in f32 and scales that are powers of two.
template <RowSteps kSteps> struct KnownKeySteps : KnownSteps<kSteps> {
  using KnownSteps<kSteps>::kIsAny;
  static constexpr bool kScalesArePowers = !kIsAny;

  __device__ static bool has_norm(const IndexRowParams& params) {
    return !kIsAny || params.norm_weight.data != nullptr;
  }
  __device__ static DType freqs_dtype(const IndexRowParams& params) {
    return kIsAny ? params.freqs_dtype : DType::f32;
  }
};

// Of a call whose rows are turned.
inline RowSteps steps_of(const IndexRowParams& params) {
  if (params.interleaved) {
    return params.hadamard ? RowSteps::turn_interleaved_hadamard : RowSteps::turn_interleaved;
  }
  return params.hadamard ? RowSteps::turn_hadamard : RowSteps::turn;
}

template <RowSteps kSteps> struct StepsTag { static constexpr RowSteps kValue = kSteps; };

// Calls `launch` with the tag of that call's steps.
template <typename Launch> void for_steps_of(const IndexRowParams& params, Launch launch) {
  switch (steps_of(params)) {
    case RowSteps::turn_hadamard:
      return launch(StepsTag<RowSteps::turn_hadamard>{});
    case RowSteps::turn_interleaved:
      return launch(StepsTag<RowSteps::turn_interleaved>{});
    case RowSteps::turn_interleaved_hadamard:
      return launch(StepsTag<RowSteps::turn_interleaved_hadamard>{});
    default:
      return launch(StepsTag<RowSteps::turn>{});
  }
}

}  // namespace quire::cuda::any::index_rows
