# Gloo (libgloo-dev): the target Gloo::gloo. Debian's own GlooConfig.cmake names no include folder.
find_path(GLOO_INCLUDE_DIR gloo/transport/unbound_buffer.h)
find_library(GLOO_LIBRARY gloo)
mark_as_advanced(GLOO_INCLUDE_DIR GLOO_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Gloo REQUIRED_VARS GLOO_LIBRARY GLOO_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "install libgloo-dev, or run scripts/setup.sh")

if(Gloo_FOUND AND NOT TARGET Gloo::gloo)
  add_library(Gloo::gloo UNKNOWN IMPORTED)
  set_target_properties(Gloo::gloo PROPERTIES IMPORTED_LOCATION ${GLOO_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${GLOO_INCLUDE_DIR})
endif()
