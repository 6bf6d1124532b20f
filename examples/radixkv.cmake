# The target `radixkv` of the examples in C++: the library of a build in this tree, or the installed
# package.
set(RADIXKV_LIBRARY "" CACHE FILEPATH "libradixkv.so of a build in this tree")

if(RADIXKV_LIBRARY)
  get_filename_component(radixkv_file "${RADIXKV_LIBRARY}" ABSOLUTE BASE_DIR "${CMAKE_BINARY_DIR}")
  get_filename_component(radixkv_folder "${radixkv_file}" DIRECTORY)
  add_library(radixkv INTERFACE)
  target_include_directories(radixkv INTERFACE "${CMAKE_CURRENT_LIST_DIR}/../include")
  target_link_libraries(radixkv INTERFACE "-L${radixkv_folder}" -lradixkv
    "-Wl,-rpath,${radixkv_folder}")
else()
  find_package(radixkv 0.2 CONFIG REQUIRED)
  add_library(radixkv INTERFACE)
  target_link_libraries(radixkv INTERFACE radixkv::cpp)
  # The second library is loaded when it is wanted, and need not be installed: its header is this
  # tree's, and no other, for radixkv.h has to be that of the installed library.
  configure_file("${CMAKE_CURRENT_LIST_DIR}/../include/radixkv_net.h"
    "${CMAKE_BINARY_DIR}/radixkv_net/radixkv_net.h" COPYONLY)
  target_include_directories(radixkv INTERFACE "${CMAKE_BINARY_DIR}/radixkv_net")
endif()
