// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/mla_prefill/launch_projection.cuh"

namespace quire::cuda::sm90::mla_prefill {

template void launch_projection<ProjectBf16>(const TileParams&, const std::int32_t*,
                                             const TileLaunch&);
template void launch_projection<ProjectF16>(const TileParams&, const std::int32_t*,
                                            const TileLaunch&);
template void launch_projection<ProjectFp8>(const TileParams&, const std::int32_t*,
                                            const TileLaunch&);

}  // namespace quire::cuda::sm90::mla_prefill
