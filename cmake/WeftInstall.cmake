# Installation: `cmake --install <build> --prefix DIR`, then find_package(weft) with DIR in CMAKE_PREFIX_PATH.

include(CMakePackageConfigHelpers)
set(weft_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/weft)

# oneDNN may lie in a prefix of its own that no system search path names, such as build/deps. The shared
# library takes it along then, so that what is installed needs nothing that may go away.
get_target_property(weft_dnnl_file DNNL::dnnl IMPORTED_LOCATION_RELEASE)
if(NOT weft_dnnl_file)
  get_target_property(weft_dnnl_file DNNL::dnnl LOCATION)
endif()
cmake_path(GET weft_dnnl_file PARENT_PATH weft_dnnl_dir)
set_target_properties(weft PROPERTIES INSTALL_RPATH "$ORIGIN")
if(BUILD_SHARED_LIBS AND NOT weft_dnnl_dir MATCHES "^/(usr/)?lib")
  get_target_property(weft_dnnl_soname DNNL::dnnl IMPORTED_SONAME_RELEASE)
  if(NOT weft_dnnl_soname)
    set(weft_dnnl_soname libdnnl.so.3)
  endif()
  install(PROGRAMS ${weft_dnnl_dir}/${weft_dnnl_soname} DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()

install(TARGETS weft EXPORT weftTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET weft_app)
  install(TARGETS weft_app EXPORT weftTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()

# The tree of headers keeps its shape, less what is private to the build.
foreach(folder core autograd ops nn optim dist data apps/common)
  if(IS_DIRECTORY ${PROJECT_SOURCE_DIR}/${folder})
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder}/
      DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/weft/${folder}
      FILES_MATCHING PATTERN "*.h" PATTERN "*.def" PATTERN "detail" EXCLUDE)
  endif()
endforeach()
if(EXISTS ${PROJECT_SOURCE_DIR}/weft.h)
  install(FILES ${PROJECT_SOURCE_DIR}/weft.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/weft)
endif()

install(EXPORT weftTargets NAMESPACE weft:: DESTINATION ${weft_package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/weftConfig.cmake.in
  ${PROJECT_BINARY_DIR}/weftConfig.cmake INSTALL_DESTINATION ${weft_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/weftConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/weftConfig.cmake
  ${PROJECT_BINARY_DIR}/weftConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/WeftApp.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindGloo.cmake
  DESTINATION ${weft_package_dir})
