# Language level, warnings, sanitizers, linker, caches: what holds for every target.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1")

add_library(tenon_options INTERFACE)
target_include_directories(tenon_options INTERFACE "${PROJECT_SOURCE_DIR}")
target_compile_definitions(tenon_options INTERFACE TENON_VERSION="${PROJECT_VERSION}")
# The evaluator is the definition of every op, so no multiply-add may be contracted behind it.
target_compile_options(tenon_options INTERFACE
  -Wall -Wextra -Werror=return-type -Wno-unused-parameter -Wno-missing-field-initializers
  -ffp-contract=off)
if(TENON_DEBUG_CHECKS)
  target_compile_definitions(tenon_options INTERFACE TENON_DEBUG_CHECKS=1)
endif()

if(TENON_SANITIZE)
  add_compile_options(-fsanitize=${TENON_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${TENON_SANITIZE})
  if(TENON_SANITIZE MATCHES "undefined")
    # vptr needs the type information of every base class, LLVM's included.
    add_compile_options(-fno-sanitize-recover=all -fno-sanitize=vptr)
    add_link_options(-fno-sanitize=vptr)
  endif()
endif()

find_program(TENON_CCACHE ccache)
if(TENON_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # What ccache asks of who precompiles headers; it cannot see __TIME__ through them, so no source may use it.
  set(launcher "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      "${TENON_CCACHE}")
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endif()

include(CheckLinkerFlag)
set(TENON_LINKER "" CACHE STRING "Linker for -fuse-ld= (default: mold, else lld, else the compiler's)")
if(TENON_LINKER STREQUAL "")
  foreach(linker mold lld)
    check_linker_flag(CXX "-fuse-ld=${linker}" TENON_HAVE_${linker})
    if(TENON_HAVE_${linker})
      set(TENON_LINKER ${linker})
      break()
    endif()
  endforeach()
endif()
if(TENON_LINKER)
  add_link_options("-fuse-ld=${TENON_LINKER}")
endif()
