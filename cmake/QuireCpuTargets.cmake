# SPDX-License-Identifier: Apache-2.0
# Which CPU targets of src/cpu are compiled: QUIRE_CPU_TARGETS is all, or native, which is what this machine runs best and
# portable. A newcomer's first build is native (scripts/configure.sh demo); everything else compiles all.

# flags: those of a processor of Linux's /proc/cpuinfo, a list. Where the system may refuse AMX, what is next to it stays.
function(quire_x86_targets_of flags result)
  set(native portable)
  if("avx512_bf16" IN_LIST flags AND "avx512_vnni" IN_LIST flags)
    list(APPEND native avx512)
    if("amx_bf16" IN_LIST flags AND "amx_int8" IN_LIST flags)
      list(APPEND native amx)
    endif()
  elseif("avx512_vnni" IN_LIST flags)
    list(APPEND native avx512_vnni)
  elseif("avx2" IN_LIST flags AND "fma" IN_LIST flags)
    list(APPEND native avx2)
  endif()
  set(${result} ${native} PARENT_SCOPE)
endfunction()

# Leaves of the list of that name what QUIRE_CPU_TARGETS asks for. All of it where nothing is known of the machine.
function(quire_choose_cpu_targets list_name)
  if(NOT QUIRE_CPU_TARGETS MATCHES "^(all|native)$")
    message(FATAL_ERROR "quire: QUIRE_CPU_TARGETS must be all or native, got ${QUIRE_CPU_TARGETS}")
  endif()
  if(QUIRE_CPU_TARGETS STREQUAL "all" OR CMAKE_CROSSCOMPILING OR NOT "avx2" IN_LIST ${list_name} OR
     NOT EXISTS /proc/cpuinfo)
    return()
  endif()
  file(STRINGS /proc/cpuinfo flags REGEX "^flags" LIMIT_COUNT 1)
  string(REGEX REPLACE "[ \t]+" ";" flags "${flags}")
  quire_x86_targets_of("${flags}" native)
  set(${list_name} ${native} PARENT_SCOPE)
endfunction()
