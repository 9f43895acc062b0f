# SPDX-License-Identifier: Apache-2.0
# Decides whether the CUDA backend is built; sets QUIRE_CUDA_ENABLED. A backend that is left out costs one line.

set(QUIRE_CUDA_ENABLED OFF)
set(quire_cuda_reason "")

if(NOT QUIRE_CUDA)
  set(quire_cuda_reason "QUIRE_CUDA=${QUIRE_CUDA}")
else()
  # An installer may not have put nvcc on PATH; check_language only looks there and at CUDACXX.
  find_program(QUIRE_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  mark_as_advanced(QUIRE_NVCC)
  # PyPI's nvidia-cutlass carries the headers inside a Python package.
  file(GLOB quire_cutlass_wheel
    "${PROJECT_SOURCE_DIR}/.venv/lib/python*/site-packages/cutlass_library/source/include")
  find_path(QUIRE_CUTLASS_INCLUDE cute/arch/mma_sm90.hpp HINTS ENV CUTLASS_DIR ${quire_cutlass_wheel} PATH_SUFFIXES include)
  mark_as_advanced(QUIRE_CUTLASS_INCLUDE)
  if(NOT PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CUDA_COMPILER_LOADED)
    # A language is enabled for the whole tree, and from its top folder: that is not for a part of it to do.
    set(quire_cuda_reason "the parent project does not enable the language CUDA")
  elseif(NOT (QUIRE_NVCC OR DEFINED ENV{CUDACXX} OR CMAKE_CUDA_COMPILER))
    set(quire_cuda_reason "nvcc not found; set CUDACXX")
  elseif(NOT QUIRE_CUTLASS_INCLUDE)
    set(quire_cuda_reason "CUTLASS headers not found; set CUTLASS_DIR or run scripts/setup.sh")
  else()
    set(QUIRE_CUDA_ENABLED ON)
  endif()
  if(NOT QUIRE_CUDA_ENABLED AND NOT QUIRE_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "QUIRE_CUDA=ON, but ${quire_cuda_reason}")
  endif()
endif()

if(QUIRE_CUDA_ENABLED)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    set(CMAKE_CUDA_COMPILER "${QUIRE_NVCC}")
  endif()
  if(NOT PROJECT_IS_TOP_LEVEL OR NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    # 'a': WGMMA and TMA multicast need the architecture-specific target. Its PTX would run on no other GPU: machine code alone.
    set(CMAKE_CUDA_ARCHITECTURES 90a-real)
  endif()
  # Of the kernels for every GPU (src/cuda/CMakeLists.txt).
  set(QUIRE_CUDA_ANY_ARCHITECTURES ${CMAKE_CUDA_ARCHITECTURES} 80-virtual)
  if(QUIRE_CUDA_ANY_PTX_ONLY)
    set(QUIRE_CUDA_ANY_ARCHITECTURES 80-virtual)
  endif()
  if(NOT CMAKE_CUDA_COMPILER_LOADED)
    enable_language(CUDA)
  endif()
  # CMake 3.25.1 (Debian 12) does not know how nvcc is asked for C++20.
  if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  # Only now: with an unknown dialect the compiler check itself would fail.
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  # CMake 3.25 marks this library as deprecated without asking whether it is there; CUDA 13 no longer has it.
  if(CMAKE_VERSION VERSION_LESS 3.26 AND NOT TARGET CUDA::nvToolsExt)
    add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
  endif()
  find_package(CUDAToolkit REQUIRED)
else()
  message(STATUS "quire: the CUDA backend is left out (${quire_cuda_reason})")
endif()
