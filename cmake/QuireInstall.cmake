# SPDX-License-Identifier: Apache-2.0
# Install tree: find_package(quire CONFIG) gives quire::quire.

include(CMakePackageConfigHelpers)
set(quire_config_dir "${CMAKE_INSTALL_LIBDIR}/cmake/quire")

# A component of its own, so that the wheel (component "python") carries no headers and no static libraries.
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)

get_property(quire_libraries GLOBAL PROPERTY QUIRE_LIBRARIES)
install(TARGETS quire ${quire_libraries} EXPORT quireTargets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/quire" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILES_MATCHING PATTERN "*.h")
install(EXPORT quireTargets NAMESPACE quire:: DESTINATION "${quire_config_dir}")

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/quireConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/quireConfig.cmake" INSTALL_DESTINATION "${quire_config_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/quireConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/quireConfig.cmake"
  "${PROJECT_BINARY_DIR}/quireConfigVersion.cmake"
  DESTINATION "${quire_config_dir}")
