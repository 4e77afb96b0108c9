# The torch of TENON_PYTHON, found by asking that interpreter. torch's own CMake package isn't used:
# on a CUDA build of torch it insists on a CUDA toolkit, which a CPU machine has no use for.
#
# Out: TENON_TORCH_FOUND, TENON_TORCH_MESSAGE, targets tenon_torch and tenon_libtorch (without Python), Python_* (Development.Module).

set(TENON_TORCH_FOUND FALSE)
if(TENON_PYTHON)
  set(tenon_python "${TENON_PYTHON}")
elseif(Python_EXECUTABLE)  # given by scikit-build-core
  set(tenon_python "${Python_EXECUTABLE}")
elseif(EXISTS "${PROJECT_SOURCE_DIR}/.venv/bin/python")
  set(tenon_python "${PROJECT_SOURCE_DIR}/.venv/bin/python")
else()
  find_program(tenon_python NAMES python3 python NO_CACHE)
endif()
if(NOT tenon_python)
  set(TENON_TORCH_MESSAGE "no Python found; give -DTENON_PYTHON=")
  return()
endif()

# PYTHONPATH is how pip hides the environment's packages during an isolated build, and torch is
# meant to be found there: the extension must match the torch it will run with.
set(tenon_probe "${PROJECT_SOURCE_DIR}/cmake/torch_probe.py")
execute_process(
  COMMAND "${CMAKE_COMMAND}" -E env --unset=PYTHONPATH "${tenon_python}" "${tenon_probe}"
  RESULT_VARIABLE tenon_probe_result OUTPUT_VARIABLE tenon_probe_out ERROR_VARIABLE tenon_probe_err
  OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT tenon_probe_result EQUAL 0)
  string(REGEX MATCH "[^\n]*\n?$" tenon_probe_err "${tenon_probe_err}")
  string(STRIP "${tenon_probe_err}" tenon_probe_err)
  set(TENON_TORCH_MESSAGE "${tenon_python} has no usable torch (${tenon_probe_err})")
  return()
endif()
list(GET tenon_probe_out 0 TENON_TORCH_VERSION)
list(GET tenon_probe_out 1 tenon_torch_dir)
list(GET tenon_probe_out 2 tenon_torch_abi)
# Another torch in the same place means another configuration.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${tenon_torch_dir}/version.py")
if(TENON_TORCH_VERSION VERSION_LESS 2.11)
  set(TENON_TORCH_MESSAGE "torch ${TENON_TORCH_VERSION} is older than 2.11")
  return()
endif()

set(Python_EXECUTABLE "${tenon_python}")
find_package(Python 3.10 COMPONENTS Interpreter Development.Module)
if(NOT Python_Development.Module_FOUND)
  set(TENON_TORCH_MESSAGE "no C headers for ${tenon_python} (Debian: python3-dev)")
  return()
endif()

add_library(tenon_libtorch INTERFACE)
target_include_directories(tenon_libtorch SYSTEM INTERFACE
  "${tenon_torch_dir}/include" "${tenon_torch_dir}/include/torch/csrc/api/include")
target_compile_definitions(tenon_libtorch INTERFACE _GLIBCXX_USE_CXX11_ABI=${tenon_torch_abi})
# Full paths without their rpath: at run time `import torch` has loaded them already.
foreach(lib torch_cpu torch c10)
  target_link_libraries(tenon_libtorch INTERFACE "${tenon_torch_dir}/lib/lib${lib}.so")
endforeach()
add_library(tenon_torch INTERFACE)
target_link_libraries(tenon_torch INTERFACE "${tenon_torch_dir}/lib/libtorch_python.so" tenon_libtorch)
set(TENON_TORCH_FOUND TRUE)
message(STATUS "tenon: torch ${TENON_TORCH_VERSION} of ${tenon_python}")
