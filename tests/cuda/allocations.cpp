#include "tests/cuda/allocations.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <stdexcept>

// The names and types of CUDA's runtime library, whose headers this program does without.
namespace troupe::test {
namespace {

std::atomic<std::uint64_t> calls{0};

/// The library's own function; it is in the process, because the plug-in that calls needs it.
template <class Function>
Function behind(const char* name) {
  ++calls;
  static void* const library = ::dlopen("libcudart.so.13", RTLD_NOW | RTLD_NOLOAD);
  void* const found = library == nullptr ? nullptr : ::dlsym(library, name);
  if (found == nullptr) throw std::runtime_error(std::string("libcudart.so.13 has no ") + name);
  return reinterpret_cast<Function>(found);
}

}  // namespace

std::uint64_t allocator_calls() { return calls; }

}  // namespace troupe::test

extern "C" {
__attribute__((visibility("default"))) int cudaMalloc(void** data, std::size_t bytes) {
  return troupe::test::behind<int (*)(void**, std::size_t)>("cudaMalloc")(data, bytes);
}
__attribute__((visibility("default"))) int cudaMallocAsync(void** data, std::size_t bytes, void* stream) {
  return troupe::test::behind<int (*)(void**, std::size_t, void*)>("cudaMallocAsync")(data, bytes, stream);
}
__attribute__((visibility("default"))) int cudaHostAlloc(void** data, std::size_t bytes, unsigned flags) {
  return troupe::test::behind<int (*)(void**, std::size_t, unsigned)>("cudaHostAlloc")(data, bytes, flags);
}
__attribute__((visibility("default"))) int cudaFree(void* data) { return troupe::test::behind<int (*)(void*)>("cudaFree")(data); }
__attribute__((visibility("default"))) int cudaFreeHost(void* data) { return troupe::test::behind<int (*)(void*)>("cudaFreeHost")(data); }
}
