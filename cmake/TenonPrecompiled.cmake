# tenon_precompile(<target> [KIND base|llvm|torch]): the headers of libraries that nearly every file of the target reads, parsed once.
# Only headers from outside the repository: a change of our own headers recompiles what includes them and nothing else. A source
# file still includes all that it uses: TENON_PRECOMPILED=OFF builds without, and CI's cold build would not notice a missing include.
option(TENON_PRECOMPILED "Precompile the headers of libraries" ON)

set(tenon_precompiled_base
  <algorithm> <array> <bit> <charconv> <chrono> <cmath> <complex> <cstdint> <cstdlib> <cstring> <functional> <limits> <map> <memory>
  <mutex> <optional> <set> <span> <string> <string_view> <thread> <utility> <variant> <vector>
  <absl/container/flat_hash_map.h> <absl/container/flat_hash_set.h> <absl/container/inlined_vector.h> <absl/status/status.h>
  <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/strings/str_format.h> <absl/strings/str_join.h> <absl/strings/str_split.h>
  <absl/types/span.h>)
set(tenon_precompiled_llvm ${tenon_precompiled_base}
  <llvm/IR/IRBuilder.h> <llvm/IR/Intrinsics.h> <llvm/IR/Module.h>)
set(tenon_precompiled_torch ${tenon_precompiled_base}
  <torch/csrc/python_headers.h> <torch/csrc/autograd/python_variable.h> <ATen/core/dispatch/Dispatcher.h>)

# GCC takes a precompiled header only under the flags that it was made with, so each kind has an object library of one empty file.
function(tenon_precompile target)
  cmake_parse_arguments(arg "" "KIND" "" ${ARGN})
  if(NOT TENON_PRECOMPILED)
    return()
  endif()
  if(arg_KIND)
    target_precompile_headers(${target} PRIVATE ${tenon_precompiled_${arg_KIND}})
    return()
  endif()
  if(NOT TARGET tenon_precompiled)
    file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/precompiled.cc" CONTENT "")
    add_library(tenon_precompiled OBJECT "${PROJECT_BINARY_DIR}/precompiled.cc")
    target_link_libraries(tenon_precompiled PRIVATE tenon_options tenon_absl)
    target_precompile_headers(tenon_precompiled PRIVATE ${tenon_precompiled_base})
  endif()
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")  # -fPIC as the header's, not the -fPIE that CMake gives an executable
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
  target_precompile_headers(${target} REUSE_FROM tenon_precompiled)
endfunction()
