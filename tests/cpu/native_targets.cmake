# SPDX-License-Identifier: Apache-2.0
# cmake -DROOT=… -P: what QUIRE_CPU_TARGETS=native compiles for the flags of processors.
cmake_minimum_required(VERSION 3.25)
include("${ROOT}/cmake/QuireCpuTargets.cmake")

function(expect flags targets)
  quire_x86_targets_of("${flags}" found)
  if(NOT found STREQUAL targets)
    message(FATAL_ERROR "flags '${flags}': '${found}', expected '${targets}'")
  endif()
endfunction()

expect("" "portable")
expect("sse4_2;avx" "portable")
expect("avx;fma;avx2" "portable;avx2")
expect("fma;avx2;avx512f;avx512vl" "portable;avx2")  # Skylake: no VNNI
expect("fma;avx2;avx512f;avx512_vnni" "portable;avx512_vnni")
expect("fma;avx2;avx512_bf16;avx512f;avx512_vnni" "portable;avx512")
expect("fma;avx2;avx512_bf16;avx512_vnni;amx_bf16;amx_tile;amx_int8" "portable;avx512;amx")
