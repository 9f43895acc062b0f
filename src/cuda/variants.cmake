# SPDX-License-Identifier: Apache-2.0
# The kernels that are compiled, family by family: which configs, and which of them share a file. Of the 15 s that a
# file with one kernel takes, 9 to 12 go to reading CUTLASS's headers, and a further kernel costs 2 to 8; neighbours rarely
# change a kernel's machine code, but they do: compare it before a kernel moves to another file.
# Every entry becomes a file of explicit instantiations in the build tree.

# quire_launch_parameters(function parameters): what all instances of a launch function take.
function(quire_launch_parameters function)
  list(JOIN ARGN ", " parameters)
  set_property(GLOBAL PROPERTY QUIRE_PARAMETERS_${function} "${parameters}")
endfunction()

# quire_expand(result launch): "f<{a|b}, 1>" stands for f<a, 1> and f<b, 1>.
function(quire_expand result launch)
  set(expanded "${launch}")
  if(launch MATCHES "^([^{]*){([^}]*)}(.*)$")
    set(before "${CMAKE_MATCH_1}")
    set(after "${CMAKE_MATCH_3}")
    string(REPLACE "|" ";" choices "${CMAKE_MATCH_2}")
    set(expanded "")
    foreach(choice IN LISTS choices)
      quire_expand(one "${before}${choice}${after}")
      list(APPEND expanded "${one}")
    endforeach()
  endif()
  set(${result} "${expanded}" PARENT_SCOPE)
endfunction()

# quire_add_variants(folder file INCLUDES header... LAUNCHES function<Config>...)
function(quire_add_variants folder file)
  cmake_parse_arguments(PARSE_ARGV 2 variants "" "" "INCLUDES;LAUNCHES")
  string(REGEX REPLACE "^([a-z0-9]+)/([a-z0-9_]+).*" "quire::cuda::\\1::\\2" namespace "${folder}")
  if(folder MATCHES "^common/")
    set(namespace quire::cuda)
  endif()
  set(text "// Made by src/cuda/variants.cmake.\n")
  foreach(header IN LISTS variants_INCLUDES)
    string(APPEND text "#include \"cuda/${header}\"\n")
  endforeach()
  string(APPEND text "\nnamespace ${namespace} {\n\n")
  set(launches "")
  foreach(launch IN LISTS variants_LAUNCHES)
    quire_expand(expanded "${launch}")
    list(APPEND launches ${expanded})
  endforeach()
  foreach(launch IN LISTS launches)
    string(REGEX MATCH "^[a-z0-9_]+" function "${launch}")
    get_property(parameters GLOBAL PROPERTY QUIRE_PARAMETERS_${function})
    string(APPEND text "template void ${launch}(${parameters});\n")
  endforeach()
  string(APPEND text "\n}  // namespace ${namespace}\n")
  set(path "${CMAKE_CURRENT_BINARY_DIR}/variants/${folder}/${file}.cu")
  file(CONFIGURE OUTPUT "${path}" CONTENT "${text}" @ONLY)  # written only where it changes
  target_sources(quire_cuda PRIVATE "${path}")
endfunction()

# Flash decode.
quire_launch_parameters(launch_decode "const DecodeParams&" "cudaStream_t")
foreach(dtype IN ITEMS bf16 f16 fp8_e4m3)
  string(REPLACE "fp8_e4m3" "fp8" name ${dtype})
  quire_add_variants(sm90/flash_attention/decode ${name}_d128
    INCLUDES sm90/flash_attention/decode/kernel.cuh
    LAUNCHES "launch_decode<DecodeD128<DType::${dtype}, {16|32|8}>>")
  quire_add_variants(sm90/flash_attention/decode ${name}_d512
    INCLUDES sm90/flash_attention/decode/kernel.cuh
    LAUNCHES "launch_decode<DecodeD512<DType::${dtype}, {16|32|8}>>")
endforeach()
quire_add_variants(sm90/flash_attention/decode bf16_d64
  INCLUDES sm90/flash_attention/decode/kernel.cuh
  LAUNCHES "launch_decode<DecodeD64<{16|32|8}>>")
quire_add_variants(sm90/flash_attention/decode d256
  INCLUDES sm90/flash_attention/decode/kernel.cuh
  LAUNCHES "launch_decode<DecodeD256<DType::{bf16|fp8_e4m3}>>")

# Prefill attention over pages.
quire_launch_parameters(launch_dequantizing "const PrefillParams&" "const DequantizedKeys&" "const PrefillLaunch&")
quire_launch_parameters(launch_prefill "const PrefillParams&" "const PagedKeys&" "const PrefillLaunch&")
quire_launch_parameters(launch_fp8 "const PrefillParams&" "const TransposedKeys&" "const PrefillLaunch&")
quire_launch_parameters(launch_transposing "const PrefillParams&" "const PagedKeys&" "const PrefillLaunch&")
set(prefill sm90/flash_attention/prefill)
quire_add_variants(${prefill} bf16_d128_dequantizing INCLUDES ${prefill}/dequantized/dequantizing_kernel.cuh
  LAUNCHES "launch_dequantizing<PrefillD128Dequantizing<DType::bf16, Scores::scaled>>")
quire_add_variants(${prefill} bf16_d256 INCLUDES ${prefill}/kernel.cuh
  LAUNCHES "launch_prefill<PrefillD256<DType::bf16, Scores::scaled>>")
quire_add_variants(${prefill} d128 INCLUDES ${prefill}/kernel.cuh
  LAUNCHES "launch_prefill<PrefillD128<DType::{bf16|f16}, Scores::scaled>>")
quire_add_variants(${prefill} d128_modified INCLUDES ${prefill}/kernel.cuh
  LAUNCHES "launch_prefill<PrefillD128<DType::{bf16|f16}, Scores::modified>>")
quire_add_variants(${prefill} d192_modified INCLUDES common/mma/wgmma_odd_shapes.cuh ${prefill}/kernel.cuh
  LAUNCHES "launch_prefill<PrefillD192<DType::{bf16|f16}, Scores::modified>>")
quire_add_variants(${prefill} d192_v128 INCLUDES ${prefill}/kernel.cuh LAUNCHES
  "launch_prefill<PrefillD192V128<DType::bf16, Scores::{scaled|modified}>>"
  "launch_prefill<PrefillD192V128<DType::f16, Scores::modified>>")
quire_add_variants(${prefill} d256_modified INCLUDES ${prefill}/kernel.cuh
  LAUNCHES "launch_prefill<PrefillD256<DType::{bf16|f16}, Scores::modified>>")
quire_add_variants(${prefill} d512 INCLUDES ${prefill}/kernel.cuh LAUNCHES
  "launch_prefill<PrefillD512<DType::bf16, Scores::{scaled|modified}>>"
  "launch_prefill<PrefillD512<DType::f16, Scores::modified>>")
quire_add_variants(${prefill} d64 INCLUDES ${prefill}/kernel.cuh LAUNCHES
  "launch_prefill<PrefillD64<DType::bf16, Scores::{scaled|modified}>>"
  "launch_prefill<PrefillD64<DType::f16, Scores::modified>>"
  "launch_prefill<PrefillD64E4m3<DType::bf16, Scores::modified>>")
quire_add_variants(${prefill} d80_d112_modified INCLUDES common/mma/wgmma_odd_shapes.cuh ${prefill}/kernel.cuh
  LAUNCHES "launch_prefill<{PrefillD80|PrefillD112}<DType::{bf16|f16}, Scores::modified>>")
quire_add_variants(${prefill} d96 INCLUDES ${prefill}/kernel.cuh LAUNCHES
  "launch_prefill<PrefillD96<DType::bf16, Scores::{scaled|modified}>>"
  "launch_prefill<PrefillD96<DType::f16, Scores::modified>>")
quire_add_variants(${prefill} e4m3_d128 INCLUDES ${prefill}/kernel.cuh
  LAUNCHES "launch_prefill<PrefillD128E4m3<DType::bf16, Scores::{scaled|modified}>>")
quire_add_variants(${prefill} fp8 INCLUDES ${prefill}/fp8/kernel.cuh LAUNCHES
  "launch_fp8<{Fp8D128|Fp8D192V128}<DType::bf16, Scores::scaled>>"
  "launch_transposing<Fp8D192V128<DType::bf16, Scores::scaled>>")

# Packed int4, few tokens.
quire_launch_parameters(launch_few_tokens "const FewTokensParams&" "const FewTokensLaunch&")
quire_add_variants(sm90/fused_qkv_matmul/int4/few_tokens quarters
  INCLUDES sm90/fused_qkv_matmul/int4/few_tokens/kernel.cuh
  LAUNCHES
  "launch_few_tokens<FewTokens<DType::bf16, 8>>"
  "launch_few_tokens<FewTokens<DType::bf16, 16>>"
  "launch_few_tokens<FewTokens<DType::f16, 8>>"
  "launch_few_tokens<FewTokens<DType::f16, 16>>")

# Packed int4.
quire_launch_parameters(launch_int4 "const Int4Params&" "const Int4Grid&" "cudaStream_t")
set(fused_qkv_matmul_int4_headers sm90/fused_qkv_matmul/int4/config.h sm90/fused_qkv_matmul/int4/kernel.cuh)
quire_add_variants(sm90/fused_qkv_matmul/int4 n128_t64 INCLUDES ${fused_qkv_matmul_int4_headers} LAUNCHES
  "launch_int4<Int4N128T64<DType::bf16>>"
  "launch_int4<Int4N128T64<DType::f16>>")
quire_add_variants(sm90/fused_qkv_matmul/int4 n256_t64 INCLUDES ${fused_qkv_matmul_int4_headers} LAUNCHES
  "launch_int4<Int4N256T64<DType::bf16>>"
  "launch_int4<Int4N256T64<DType::f16>>")
quire_add_variants(sm90/fused_qkv_matmul/int4 n64_t16 INCLUDES ${fused_qkv_matmul_int4_headers} LAUNCHES
  "launch_int4<Int4N64T16<DType::bf16>>"
  "launch_int4<Int4N64T16<DType::f16>>")
quire_add_variants(sm90/fused_qkv_matmul/int4 n64_t32 INCLUDES ${fused_qkv_matmul_int4_headers} LAUNCHES
  "launch_int4<Int4N64T32<DType::bf16>>"
  "launch_int4<Int4N64T32<DType::f16>>")
quire_add_variants(sm90/fused_qkv_matmul/int4 n64_t64 INCLUDES ${fused_qkv_matmul_int4_headers} LAUNCHES
  "launch_int4<Int4N64T64<DType::bf16>>"
  "launch_int4<Int4N64T64<DType::f16>>")

# Projections.
quire_launch_parameters(launch_tile "const TileParams&" "const TileLaunch&")
set(matmul_headers common/matmul/kernel.cuh common/matmul/variants.h)
quire_add_variants(common/matmul codes_n128
  INCLUDES common/matmul/quantized_kv_epilogue.cuh common/matmul/variants.h common/matmul/kernel.cuh
  LAUNCHES
  "launch_tile<CodesN128<DType::bf16>>"
  "launch_tile<CodesN128<DType::f16>>"
  "launch_tile<CodesN128<DType::fp8_e4m3, Scaling::blocks>>"
  "launch_tile<CodesN128<DType::fp8_e4m3, Scaling::rows>>")
quire_add_variants(common/matmul codes_n128_t128
  INCLUDES common/matmul/quantized_kv_epilogue.cuh common/matmul/variants.h common/matmul/kernel.cuh
  LAUNCHES
  "launch_tile<CodesN128T128<DType::bf16>>"
  "launch_tile<CodesN128T128<DType::f16>>"
  "launch_tile<CodesN128T128<DType::fp8_e4m3, Scaling::blocks>>"
  "launch_tile<CodesN128T128<DType::fp8_e4m3, Scaling::rows>>")
quire_add_variants(common/matmul codes_n128_t64
  INCLUDES common/matmul/quantized_kv_epilogue.cuh common/matmul/variants.h common/matmul/kernel.cuh
  LAUNCHES
  "launch_tile<CodesN128T64<DType::bf16>>"
  "launch_tile<CodesN128T64<DType::f16>>"
  "launch_tile<CodesN128T64<DType::fp8_e4m3, Scaling::blocks>>"
  "launch_tile<CodesN128T64<DType::fp8_e4m3, Scaling::rows>>")
quire_add_variants(common/matmul codes_n192
  INCLUDES common/matmul/quantized_kv_epilogue.cuh common/matmul/variants.h common/matmul/kernel.cuh
  LAUNCHES
  "launch_tile<CodesN192<DType::bf16>>"
  "launch_tile<CodesN192<DType::f16>>"
  "launch_tile<CodesN192<DType::fp8_e4m3, Scaling::blocks>>"
  "launch_tile<CodesN192<DType::fp8_e4m3, Scaling::rows>>")
quire_add_variants(common/matmul codes_n256
  INCLUDES common/matmul/quantized_kv_epilogue.cuh common/matmul/variants.h common/matmul/kernel.cuh
  LAUNCHES
  "launch_tile<CodesN256<DType::bf16>>"
  "launch_tile<CodesN256<DType::f16>>")
quire_add_variants(common/matmul codes_n64_t128
  INCLUDES common/matmul/quantized_kv_epilogue.cuh common/matmul/variants.h common/matmul/kernel.cuh
  LAUNCHES
  "launch_tile<CodesN64T128<DType::bf16>>"
  "launch_tile<CodesN64T128<DType::f16>>"
  "launch_tile<CodesN64T128<DType::fp8_e4m3, Scaling::blocks>>"
  "launch_tile<CodesN64T128<DType::fp8_e4m3, Scaling::rows>>")
quire_add_variants(common/matmul codes_n64_t64
  INCLUDES common/matmul/quantized_kv_epilogue.cuh common/matmul/variants.h common/matmul/kernel.cuh
  LAUNCHES
  "launch_tile<CodesN64T64<DType::bf16>>"
  "launch_tile<CodesN64T64<DType::f16>>"
  "launch_tile<CodesN64T64<DType::fp8_e4m3, Scaling::blocks>>"
  "launch_tile<CodesN64T64<DType::fp8_e4m3, Scaling::rows>>")
quire_add_variants(common/matmul n160
  INCLUDES common/matmul/variants.h common/mma/wgmma_odd_shapes.cuh common/matmul/kernel.cuh
  LAUNCHES
  "launch_tile<TileN160<DType::bf16>>"
  "launch_tile<TileN160<DType::f16>>"
  "launch_tile<TileN160<DType::fp8_e4m3, Scaling::blocks>>"
  "launch_tile<TileN160<DType::fp8_e4m3, Scaling::rows>>")
quire_add_variants(common/matmul n192 INCLUDES ${matmul_headers} LAUNCHES
  "launch_tile<TileN192<DType::bf16>>"
  "launch_tile<TileN192<DType::f16>>"
  "launch_tile<TileN192<DType::f32>>"
  "launch_tile<TileN192<DType::fp8_e4m3, Scaling::blocks>>"
  "launch_tile<TileN192<DType::fp8_e4m3, Scaling::rows>>")
quire_add_variants(common/matmul n256
  INCLUDES common/matmul/variants.h common/matmul/kernel.cuh
  LAUNCHES
  "launch_tile<WholeTilesOnly<TileN256<DType::bf16>>>"
  "launch_tile<WholeTilesOnly<TileN256<DType::f16>>>"
  "launch_tile<WholeTilesOnly<TileN256FastAccum>>"
  "launch_tile<TileN256<DType::f32>>"
  "launch_tile<WholeTilesOnly<TileN256<DType::fp8_e4m3, Scaling::blocks>>>")
quire_add_variants(common/matmul n256_tail INCLUDES ${matmul_headers} LAUNCHES
  "launch_tile<TileN256<DType::bf16>>"
  "launch_tile<TileN256<DType::f16>>"
  "launch_tile<TileN256FastAccum>"
  "launch_tile<TileN256<DType::fp8_e4m3, Scaling::blocks>>")
quire_add_variants(common/matmul n64_t128 INCLUDES ${matmul_headers} LAUNCHES
  "launch_tile<TileN64T128<DType::bf16>>"
  "launch_tile<TileN64T128<DType::f16>>"
  "launch_tile<TileN64T128<DType::f32>>"
  "launch_tile<TileN64T128<DType::fp8_e4m3, Scaling::blocks>>"
  "launch_tile<TileN64T128<DType::fp8_e4m3, Scaling::rows>>")
quire_add_variants(common/matmul n64_t16 INCLUDES ${matmul_headers} LAUNCHES
  "launch_tile<TileN64T16<DType::bf16>>"
  "launch_tile<TileN64T16<DType::f16>>"
  "launch_tile<TileN64T16<DType::f32>>"
  "launch_tile<TileN64T16<DType::fp8_e4m3, Scaling::blocks>>"
  "launch_tile<TileN64T16<DType::fp8_e4m3, Scaling::rows>>")
quire_add_variants(common/matmul n64_t64 INCLUDES ${matmul_headers} LAUNCHES
  "launch_tile<TileN64T64<DType::bf16>>"
  "launch_tile<TileN64T64<DType::f16>>"
  "launch_tile<TileN64T64<DType::f32>>"
  "launch_tile<TileN64T64<DType::fp8_e4m3, Scaling::blocks>>"
  "launch_tile<TileN64T64<DType::fp8_e4m3, Scaling::rows>>")
quire_add_variants(common/matmul n96 INCLUDES ${matmul_headers} LAUNCHES
  "launch_tile<TileN96<DType::bf16>>"
  "launch_tile<TileN96<DType::f16>>"
  "launch_tile<TileN96<DType::f32>>"
  "launch_tile<TileN96<DType::fp8_e4m3, Scaling::blocks>>"
  "launch_tile<TileN96<DType::fp8_e4m3, Scaling::rows>>")
quire_add_variants(common/matmul n96_t128 INCLUDES ${matmul_headers} LAUNCHES
  "launch_tile<TileN96T128<DType::bf16>>"
  "launch_tile<TileN96T128<DType::f16>>"
  "launch_tile<TileN96T128<DType::f32>>"
  "launch_tile<TileN96T128<DType::fp8_e4m3, Scaling::blocks>>"
  "launch_tile<TileN96T128<DType::fp8_e4m3, Scaling::rows>>")
quire_add_variants(common/matmul n96_t64 INCLUDES ${matmul_headers} LAUNCHES
  "launch_tile<TileN96T64<DType::bf16>>"
  "launch_tile<TileN96T64<DType::f16>>"
  "launch_tile<TileN96T64<DType::f32>>"
  "launch_tile<TileN96T64<DType::fp8_e4m3, Scaling::blocks>>"
  "launch_tile<TileN96T64<DType::fp8_e4m3, Scaling::rows>>")

# The indexer: a row to a cluster, a row to a group of CTAs, tiles.
quire_launch_parameters(launch_index_cluster "const IndexParams&" "const ClusterShape&" "cudaStream_t")
quire_launch_parameters(launch_index_group "const IndexParams&" "const GroupBoard&" "const GroupShape&" "cudaStream_t")
quire_launch_parameters(launch_index "const IndexParams&" "cudaStream_t")
set(indexer sm90/mla_indexer)
quire_add_variants(${indexer}/cluster h32_h64 INCLUDES ${indexer}/cluster/kernel.cuh
  LAUNCHES "launch_index_cluster<IndexRow<{32|64}, {128|64}>>")
quire_add_variants(${indexer}/cluster h8_h16 INCLUDES ${indexer}/cluster/kernel.cuh
  LAUNCHES "launch_index_cluster<IndexRow<{8|16}, {128|64}>>")
quire_add_variants(${indexer}/group h32_h64 INCLUDES ${indexer}/group/kernel.cuh
  LAUNCHES "launch_index_group<IndexGroup<{32|64}, {128|64}>>")
quire_add_variants(${indexer}/group h8_h16 INCLUDES ${indexer}/group/kernel.cuh
  LAUNCHES "launch_index_group<IndexGroup<{8|16}, {128|64}>>")
quire_add_variants(${indexer} h4_h8 INCLUDES ${indexer}/kernel.cuh LAUNCHES
  "launch_index<IndexTwo<4, {128|64}>>"
  "launch_index<{IndexOne|IndexTwo}<8, 128>>"
  "launch_index<{IndexOne|IndexTwo}<8, 64>>")
foreach(heads IN ITEMS 16 32 64)
  quire_add_variants(${indexer} h${heads} INCLUDES ${indexer}/kernel.cuh LAUNCHES
    "launch_index<{IndexOne|IndexTwo}<${heads}, 128>>"
    "launch_index<{IndexOne|IndexTwo}<${heads}, 64>>")
endforeach()

# MLA decode.
foreach(family IN ITEMS pingpong swap_ab fp8_wgmma fp8_pingpong)
  quire_launch_parameters(launch_${family} "const MlaDecodeParams&" "cudaStream_t")
endforeach()
quire_add_variants(sm90/mla_decode bf16_pingpong INCLUDES sm90/mla_decode/pingpong/kernel.cuh
  LAUNCHES "launch_pingpong<MlaDecodeBf16{R64|R128|R256}>")
quire_add_variants(sm90/mla_decode bf16_r16 INCLUDES sm90/mla_decode/swap_ab/kernel.cuh
  LAUNCHES "launch_swap_ab<MlaDecodeBf16R16>")
quire_add_variants(sm90/mla_decode fp8_r16 INCLUDES sm90/mla_decode/swap_ab/kernel.cuh
  LAUNCHES "launch_swap_ab<{MlaDecodeFp8R16|MlaDecodeFp8BlockR16}>")
quire_add_variants(sm90/mla_decode fp8_wgmma INCLUDES sm90/mla_decode/fp8_wgmma/kernel.cuh
  LAUNCHES "launch_fp8_wgmma<MlaDecodeFp8Block{R64|R128}>")
quire_add_variants(sm90/mla_decode fp8_codes INCLUDES sm90/mla_decode/fp8_pingpong/kernel.cuh
  LAUNCHES "launch_fp8_pingpong<MlaDecode{R64|R128}<MlaDecodeCodes>>")
quire_add_variants(sm90/mla_decode fp8_code_pairs INCLUDES sm90/mla_decode/fp8_pingpong/kernel.cuh
  LAUNCHES "launch_fp8_pingpong<MlaDecode{R64|R128}<MlaDecodeCodePairs>>")

# The MLA prefill branch.
quire_launch_parameters(launch_stationary "const StationaryParams&" "cudaStream_t")
quire_launch_parameters(launch_fp8_attention "const PrefillParams&" "const ProjectedKeys&" "const PrefillLaunch&")
quire_launch_parameters(launch_projected "const PrefillParams&" "const ProjectedKeys&" "const PrefillLaunch&")
quire_launch_parameters(launch_projection "const TileParams&" "const std::int32_t*" "const TileLaunch&")
quire_add_variants(sm90/mla_prefill stationary INCLUDES sm90/mla_prefill/stationary/kernel.cuh LAUNCHES
  "launch_stationary<DType::bf16, DType::{bf16|fp8_e4m3}>"
  "launch_stationary<DType::f16, DType::f16>")
quire_add_variants(sm90/mla_prefill fp8_bf16 INCLUDES sm90/mla_prefill/projected_source.cuh
  LAUNCHES "launch_fp8_attention<Fp8Attention<DType::bf16>>")
quire_add_variants(sm90/mla_prefill modified INCLUDES sm90/mla_prefill/projected_source.cuh
  LAUNCHES "launch_projected<ProjectedAttention<DType::{bf16|f16}, Scores::modified>>")
quire_add_variants(sm90/mla_prefill project INCLUDES sm90/mla_prefill/launch_projection.cuh
  LAUNCHES "launch_projection<Project{Bf16|F16|Fp8}>")
quire_add_variants(sm90/mla_prefill scaled INCLUDES sm90/mla_prefill/projected_source.cuh
  LAUNCHES "launch_projected<ProjectedAttention<DType::{bf16|f16}, Scores::scaled>>")

# Sparse MLA: products of e4m3 for few heads, tiles.
quire_launch_parameters(launch_sparse_fp8 "const SparseParams&" "int" "cudaStream_t")
quire_launch_parameters(launch_sparse_tiles "const SparseParams&" "int" "cudaStream_t")
quire_add_variants(sm90/sparse_mla/fp8 few_heads INCLUDES sm90/sparse_mla/fp8/kernel.cuh
  LAUNCHES "launch_sparse_fp8<SparseFp8Heads{16|32}>")
quire_add_variants(sm90/sparse_mla bf16 INCLUDES sm90/sparse_mla/kernel.cuh
  LAUNCHES "launch_sparse_tiles<SparseBf16>")
quire_add_variants(sm90/sparse_mla fp8 INCLUDES sm90/sparse_mla/kernel.cuh
  LAUNCHES "launch_sparse_tiles<{SparseFp8|SparseFp8Pair}>")
quire_add_variants(sm90/sparse_mla whole INCLUDES sm90/sparse_mla/kernel.cuh
  LAUNCHES "launch_sparse_tiles<SparseWhole{Bf16|Fp8|Fp8Pair}>")
