# SPDX-License-Identifier: Apache-2.0
# Install tree: find_package(quire CONFIG) gives quire::quire, `pkg-config quire` the same.

include(CMakePackageConfigHelpers)
set(quire_config_dir "${CMAKE_INSTALL_LIBDIR}/cmake/quire")

# A component of its own, so that the wheel (component "python") carries no headers and no libraries.
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/quire" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILES_MATCHING PATTERN "*.h")
# A file of targets for each kind: a user of the shared library must not be asked for what the static one links.
foreach(kind IN ITEMS static shared)
  if(TARGET quire_${kind})
    install(TARGETS quire_${kind} EXPORT quire_${kind}
      ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
      LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
    install(EXPORT quire_${kind} NAMESPACE quire:: FILE quire_${kind}.cmake DESTINATION "${quire_config_dir}")
  endif()
endforeach()

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/quireConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/quireConfig.cmake" INSTALL_DESTINATION "${quire_config_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/quireConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/quireConfig.cmake"
  "${PROJECT_BINARY_DIR}/quireConfigVersion.cmake"
  DESTINATION "${quire_config_dir}")

# Paths relative to the file itself: the tree may be moved, or unpacked anywhere.
set(quire_pkg_config_dir "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
file(RELATIVE_PATH quire_pkg_config_prefix "/prefix/${quire_pkg_config_dir}" /prefix)
set(quire_private_libs "-lstdc++ -lm -pthread")
if(QUIRE_CUDA_ENABLED)
  list(GET CUDAToolkit_LIBRARY_DIR 0 quire_cuda_dir)
  string(PREPEND quire_private_libs "-L${quire_cuda_dir} -lcudart_static -ldl -lrt ")
endif()
configure_file("${PROJECT_SOURCE_DIR}/cmake/quire.pc.in" "${PROJECT_BINARY_DIR}/quire.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/quire.pc" DESTINATION "${quire_pkg_config_dir}")
