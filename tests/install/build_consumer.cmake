# SPDX-License-Identifier: Apache-2.0
# Installs the build tree into a fresh prefix, moves that, and builds consumer/ against it. Run with cmake -P; the
# variables are set by tests/install/CMakeLists.txt. KIND is the component asked for: static, shared, or empty.
include("${TEST_DIR}/steps.cmake")

install_and_move("${SCRATCH_DIR}/prefix")
# The flags matter for the sanitizer presets: a consumer of an instrumented library is linked the same way.
run("${CMAKE_COMMAND}" -S "${TEST_DIR}/consumer" -B "${SCRATCH_DIR}/build" -G "${GENERATOR}"
  "-DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}" "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_CXX_FLAGS=${FLAGS}"
  "-DCMAKE_BUILD_TYPE=${CONFIG}" "-DCMAKE_PREFIX_PATH=${SCRATCH_DIR}/prefix" "-DQUIRE_VERSION=${VERSION}"
  "-DQUIRE_KIND=${KIND}")
run("${CMAKE_COMMAND}" --build "${SCRATCH_DIR}/build" --config "${CONFIG}")
run("${SCRATCH_DIR}/build/app")

set(expected "${KIND}")
if(expected STREQUAL "")
  set(expected static)
  file(GLOB_RECURSE shared_library "${SCRATCH_DIR}/prefix/*/libquire.so")
  if(shared_library)
    set(expected shared)
  endif()
endif()
expect_needed_libraries("${SCRATCH_DIR}/build/app" ${expected})

# Nothing that was installed may point back at the tree it was built in.
file(GLOB_RECURSE texts "${SCRATCH_DIR}/prefix/*.cmake" "${SCRATCH_DIR}/prefix/*.pc")
foreach(path IN LISTS texts)
  file(READ "${path}" text)
  foreach(folder IN ITEMS "${BUILD_DIR}/src" "${SCRATCH_DIR}")
    string(FIND "${text}" "${folder}" position)
    if(NOT position EQUAL -1)
      message(FATAL_ERROR "${path} names ${folder}")
    endif()
  endforeach()
endforeach()
