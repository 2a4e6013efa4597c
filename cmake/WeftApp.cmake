# weft_add_app(NAME [LIBRARY...])
#
# Every source of the folder NAME (or apps/NAME) beside the calling CMakeLists.txt becomes the program NAME
# in <build>/bin, linked to weft, to the apps' common flags and to the libraries given. The target is called
# app_NAME, so that the program `weft` and the library `weft` do not clash. Works inside weft and, after
# find_package(weft), in any other project.

include_guard(GLOBAL)
include(GNUInstallDirs)

function(weft_add_app name)
  set(folder ${CMAKE_CURRENT_SOURCE_DIR}/${name})
  if(NOT IS_DIRECTORY ${folder})
    set(folder ${CMAKE_CURRENT_SOURCE_DIR}/apps/${name})
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${folder}/*.cpp)
  if(NOT sources)
    message(FATAL_ERROR "weft_add_app(${name}): expected sources in ${name}/ or apps/${name}/ under "
      "${CMAKE_CURRENT_SOURCE_DIR}, got none.")
  endif()

  add_executable(app_${name} ${sources})
  set_target_properties(app_${name} PROPERTIES
    OUTPUT_NAME ${name}
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin
    INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}"
    INSTALL_RPATH_USE_LINK_PATH ON)
  target_include_directories(app_${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(app_${name} PRIVATE weft::weft ${ARGN})
  # The flag parser is there for apps that include it; an app that does not needs none.
  foreach(library weft_warnings weft::app CLI11::CLI11)
    if(TARGET ${library})
      target_link_libraries(app_${name} PRIVATE ${library})
    endif()
  endforeach()
  install(TARGETS app_${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()
