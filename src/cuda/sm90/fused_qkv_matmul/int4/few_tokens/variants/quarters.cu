// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/fused_qkv_matmul/int4/few_tokens/kernel.cuh"

namespace quire::cuda::sm90::fused_qkv_matmul {

template void launch_few_tokens<FewTokens<DType::bf16, 8>>(const FewTokensParams&,
                                                           const FewTokensLaunch&);
template void launch_few_tokens<FewTokens<DType::bf16, 16>>(const FewTokensParams&,
                                                            const FewTokensLaunch&);
template void launch_few_tokens<FewTokens<DType::f16, 8>>(const FewTokensParams&,
                                                          const FewTokensLaunch&);
template void launch_few_tokens<FewTokens<DType::f16, 16>>(const FewTokensParams&,
                                                           const FewTokensLaunch&);

}  // namespace quire::cuda::sm90::fused_qkv_matmul
