# Included at the end of llama.cpp's tools/server/CMakeLists.txt, by the patch beside this file:
# radixkv's snapshot cache in the seat of llama-server's prompt cache. RADIXKV_LLAMA_SERVER is the
# folder of this file.
include("${CMAKE_CURRENT_LIST_DIR}/../../examples/radixkv.cmake")

# The sources include each other by their own names; llama.cpp includes them by that of the folder.
get_filename_component(radixkv_integrations "${CMAKE_CURRENT_LIST_DIR}" DIRECTORY)
target_include_directories(llama-common PRIVATE "${radixkv_integrations}")
set(radixkv_examples "${radixkv_integrations}/../examples")
target_include_directories(server-context PRIVATE
  "${radixkv_integrations}" "${radixkv_examples}/engine")
target_sources(server-context PRIVATE
  "${CMAKE_CURRENT_LIST_DIR}/disk.cpp"
  "${CMAKE_CURRENT_LIST_DIR}/entry.cpp"
  "${CMAKE_CURRENT_LIST_DIR}/fingerprint.cpp"
  "${CMAKE_CURRENT_LIST_DIR}/key.cpp"
  "${CMAKE_CURRENT_LIST_DIR}/prompt_cache.cpp"
  "${radixkv_examples}/engine/serve/net_library.cpp"
  "${radixkv_examples}/engine/serve/remote_store.cpp")
target_link_libraries(server-context PUBLIC radixkv ${CMAKE_DL_LIBS})

# Small models with random weights, for the tests.
add_executable(make_gguf EXCLUDE_FROM_ALL
  "${radixkv_examples}/llama_cpp/make_gguf.cpp" "${radixkv_examples}/engine/options.cpp")
target_include_directories(make_gguf PRIVATE "${radixkv_examples}")
target_link_libraries(make_gguf PRIVATE llama)
