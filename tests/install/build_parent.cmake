# SPDX-License-Identifier: Apache-2.0
# Configures parent/, which has Quire as a part of it, and installs what is the parent's own. Run with cmake -P.
# WAY: add_subdirectory or FetchContent. With FULL=ON the library is compiled and the parent's program linked and run.
# SHARED=ON: the parent builds shared libraries.
include("${TEST_DIR}/steps.cmake")

file(REMOVE_RECURSE "${SCRATCH_DIR}")
# No build type: that is the parent's choice too. What only the command and the tests use cannot be found.
set(options -DWAY=${WAY} "-DQUIRE_ROOT=${SOURCE_DIR}" "-DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}"
  "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_CXX_FLAGS=${FLAGS}" -DBUILD_SHARED_LIBS=${SHARED})
foreach(package IN ITEMS CLI11 nlohmann_json GTest Python nanobind)
  list(APPEND options -DCMAKE_DISABLE_FIND_PACKAGE_${package}=ON)
endforeach()
run("${CMAKE_COMMAND}" -S "${TEST_DIR}/parent" -B "${SCRATCH_DIR}/build" -G "${GENERATOR}" ${options})

run("${CMAKE_COMMAND}" --build "${SCRATCH_DIR}/build" --target plain)
if(FULL)
  run("${CMAKE_COMMAND}" --build "${SCRATCH_DIR}/build" --parallel)
  run("${SCRATCH_DIR}/build/app")
  set(kind static)
  if(SHARED)
    set(kind shared)
  endif()
  expect_needed_libraries("${SCRATCH_DIR}/build/app" ${kind})
endif()

run("${CMAKE_COMMAND}" --install "${SCRATCH_DIR}/build" --prefix "${SCRATCH_DIR}/prefix")
file(GLOB_RECURSE installed RELATIVE "${SCRATCH_DIR}/prefix" "${SCRATCH_DIR}/prefix/*")
if(NOT installed STREQUAL "bin/plain")
  message(FATAL_ERROR "the parent installs more than its own program: ${installed}")
endif()
