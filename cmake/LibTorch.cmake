# LibTorch out of the PyPI wheel, without the wheel's own CMake package: that one demands a CUDA toolkit and every NVIDIA
# library of the wheel at link time. Defines torch::cpu (libtorch_cpu + libc10): all that a CPU build needs.
set(LIBTORCH_ROOT "${CMAKE_SOURCE_DIR}/third_party/site/torch" CACHE PATH "folder with LibTorch's lib/ and include/")

function(add_libtorch_library name)
  find_library(LIBTORCH_${name} ${name} PATHS "${LIBTORCH_ROOT}/lib" NO_DEFAULT_PATH)
  if(NOT LIBTORCH_${name})
    message(FATAL_ERROR "lib${name}.so not found in ${LIBTORCH_ROOT}/lib: run tools/setup.sh, or set -DLIBTORCH_ROOT=<site-packages>/torch")
  endif()
  add_library(torch::${name} SHARED IMPORTED)
  set_target_properties(torch::${name} PROPERTIES IMPORTED_LOCATION "${LIBTORCH_${name}}")
endfunction()

add_libtorch_library(c10)
add_libtorch_library(torch_cpu)
add_library(torch::cpu INTERFACE IMPORTED)
target_link_libraries(torch::cpu INTERFACE torch::torch_cpu torch::c10)
# Searched after the system's headers: the wheel's include/ also holds fmt 12, which must not win against spdlog's.
target_compile_options(torch::cpu INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter ${LIBTORCH_ROOT}/include -idirafter ${LIBTORCH_ROOT}/include/torch/csrc/api/include>")
# libtorch_cpu finds libcudart and libcupti through its own RPATH ($ORIGIN/../../nvidia/cu13/lib) at run time.
target_link_options(torch::cpu INTERFACE -Wl,--allow-shlib-undefined)
