# Third-party libraries. Targets made here: tenon_absl, tenon_llvm.

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)
find_package(absl REQUIRED CONFIG)

add_library(tenon_absl INTERFACE)
target_link_libraries(tenon_absl INTERFACE
  absl::status absl::statusor absl::strings absl::str_format absl::hash absl::flat_hash_map
  absl::flat_hash_set absl::node_hash_map absl::inlined_vector absl::fixed_array absl::span
  absl::synchronization absl::time absl::cleanup absl::function_ref absl::bits absl::int128
  absl::random_random Threads::Threads)

find_package(LLVM 22.1 REQUIRED CONFIG HINTS /usr/lib/llvm-22 /usr/lib/llvm-22/lib/cmake/llvm)
message(STATUS "tenon: LLVM ${LLVM_PACKAGE_VERSION} in ${LLVM_DIR}")

add_library(tenon_llvm INTERFACE)
target_include_directories(tenon_llvm SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS})
# Not LLVM_DEFINITIONS: what Debian puts there (_GNU_SOURCE, the C++11 ABI, __STDC_*_MACROS) g++ has by itself, and precompiled
# headers are refused where a macro differs.
llvm_map_components_to_libnames(tenon_llvm_libs
  core support analysis transformutils scalaropts instcombine passes bitreader bitwriter irreader
  asmparser linker target mc object orcjit jitlink executionengine
  x86codegen x86asmparser x86desc x86disassembler x86info nvptxcodegen nvptxdesc nvptxinfo)
if(TENON_LLVM_STATIC)
  target_link_libraries(tenon_llvm INTERFACE ${tenon_llvm_libs})
else()
  # An executable with the property TENON_LLVM_STATIC has LLVM inside whatever the others have.
  set(static "$<BOOL:$<TARGET_PROPERTY:TENON_LLVM_STATIC>>")
  target_link_libraries(tenon_llvm INTERFACE "$<${static}:${tenon_llvm_libs}>" "$<$<NOT:${static}>:LLVM>")
endif()
