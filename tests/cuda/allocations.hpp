#pragma once
#include <cstdint>

namespace troupe::test {

/// Calls of CUDA's allocators (cudaMalloc, cudaMallocAsync, cudaHostAlloc and what frees) that anybody in this process has made through the runtime library
/// so far: the test program's own functions of these names stand before it and count.
[[nodiscard]] std::uint64_t allocator_calls();

}  // namespace troupe::test
