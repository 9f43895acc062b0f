# SPDX-License-Identifier: Apache-2.0
# What a consumer links. The objects are compiled once, in src/; here they become
#   quire_static   libquire.a, for the install tree
#   quire_shared   libquire.so, which shows what include/quire declares and nothing else (QUIRE_BUILD_SHARED)
#   quire::quire   inside the build tree, or in a parent project: shared where BUILD_SHARED_LIBS asks for it
get_property(quire_parts GLOBAL PROPERTY QUIRE_LIBRARIES)

function(quire_add_whole_library name kind)
  list(TRANSFORM quire_parts REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE objects)
  add_library(${name} ${kind} ${objects})
  target_include_directories(${name} PUBLIC
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
    "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_link_libraries(${name} PRIVATE Threads::Threads)
  if(QUIRE_CUDA_ENABLED)
    target_link_libraries(${name} PRIVATE CUDA::cudart_static)
  endif()
  # nvcc has nothing to link: no kernel calls a function of another object.
  set_target_properties(${name} PROPERTIES OUTPUT_NAME quire LINKER_LANGUAGE CXX)
endfunction()

if(QUIRE_INSTALL)
  quire_add_whole_library(quire_static STATIC)
  set_target_properties(quire_static PROPERTIES EXPORT_NAME static)
endif()

if(QUIRE_BUILD_SHARED OR BUILD_SHARED_LIBS)
  quire_add_whole_library(quire_shared SHARED)
  # Before version 1.0 a new minor version may change the interface, so it is part of the soname.
  set_target_properties(quire_shared PROPERTIES EXPORT_NAME shared VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  # Visibility hides our own functions; the script also hides those that headers of others leave in every object.
  configure_file("${PROJECT_SOURCE_DIR}/cmake/libquire.map.in" "${PROJECT_BINARY_DIR}/libquire.map" @ONLY)
  target_link_options(quire_shared PRIVATE
    "LINKER:--version-script=${PROJECT_BINARY_DIR}/libquire.map" LINKER:--no-undefined)
  set_property(TARGET quire_shared APPEND PROPERTY LINK_DEPENDS "${PROJECT_BINARY_DIR}/libquire.map")
endif()

add_library(quire INTERFACE)
add_library(quire::quire ALIAS quire)
if(BUILD_SHARED_LIBS)
  target_link_libraries(quire INTERFACE quire_shared)
else()
  target_link_libraries(quire INTERFACE quire_c quire_ops quire_reference quire_core)
endif()
