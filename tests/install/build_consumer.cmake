# SPDX-License-Identifier: Apache-2.0
# Run with cmake -P; the variables are set by tests/install/CMakeLists.txt.

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE "${SCRATCH_DIR}")
run("${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${SCRATCH_DIR}/prefix" --component development
  --config "${CONFIG}")

# The flags matter for the sanitizer presets: a consumer of an instrumented library is linked the same way.
run("${CMAKE_COMMAND}" -S "${CONSUMER_DIR}" -B "${SCRATCH_DIR}/build" -G "${GENERATOR}"
  "-DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}" "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_CXX_FLAGS=${FLAGS}"
  "-DCMAKE_BUILD_TYPE=${CONFIG}" "-DCMAKE_PREFIX_PATH=${SCRATCH_DIR}/prefix" "-DQUIRE_VERSION=${VERSION}")
run("${CMAKE_COMMAND}" --build "${SCRATCH_DIR}/build" --config "${CONFIG}")
run("${SCRATCH_DIR}/build/app")

# Nothing that was installed may point back at the tree it was built in.
file(GLOB_RECURSE configs "${SCRATCH_DIR}/prefix/*.cmake")
foreach(config IN LISTS configs)
  file(READ "${config}" text)
  string(FIND "${text}" "${BUILD_DIR}/src" position)
  if(NOT position EQUAL -1)
    message(FATAL_ERROR "${config} names the build tree")
  endif()
endforeach()
