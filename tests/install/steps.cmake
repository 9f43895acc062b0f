# SPDX-License-Identifier: Apache-2.0
# What the scripts of this folder share.

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# Installs to one prefix and moves the tree to another: an archive of it is unpacked anywhere.
function(install_and_move prefix)
  file(REMOVE_RECURSE "${SCRATCH_DIR}")
  run("${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${SCRATCH_DIR}/first" --component development
    --config "${CONFIG}" OUTPUT_QUIET)
  file(RENAME "${SCRATCH_DIR}/first" "${prefix}")
endfunction()

# A program of either kind needs no fmt; with the static library it needs no libquire.so either.
function(expect_needed_libraries program kind)
  execute_process(COMMAND "${READELF}" --dynamic "${program}" OUTPUT_VARIABLE dynamic COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "Shared library: [^\n]+" needed "${dynamic}")
  if(needed MATCHES "libfmt|libcudart")
    message(FATAL_ERROR "${program} needs a library that Quire should hold: ${needed}")
  endif()
  if(needed MATCHES "libquire\\.so" AND kind STREQUAL "static")
    message(FATAL_ERROR "${program} is linked with the shared library: ${needed}")
  elseif(kind STREQUAL "shared" AND NOT needed MATCHES "libquire\\.so\\.[0-9]+\\.[0-9]+\\]")
    message(FATAL_ERROR "${program} does not name libquire.so by its soname: ${needed}")
  endif()
endfunction()
