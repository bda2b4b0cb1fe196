#pragma once
// Hopper's copies of whole ranges from device to shared memory, done by a unit of its own and counted by a barrier. Device code for sm_90 only.
#include <cstdint>

namespace troupe::cuda {

__device__ inline std::uint32_t shared_address(const void* pointer) { return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer)); }

/// One stage of shared memory that one copy at a time fills. One thread starts copies, any thread waits; phases alternate from 0.
class BulkStage {
 public:
  /// By one thread, before a barrier of all that will use it.
  __device__ void prepare() {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&full_)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  /// By one thread, when all have read what the stage held. Addresses and bytes: multiples of 16.
  __device__ void fill(void* to, const void* from, std::uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&full_)), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)), "l"(from), "r"(bytes),
                 "r"(shared_address(&full_))
                 : "memory");
  }
  __device__ void wait(std::uint32_t phase) {
    std::uint32_t ready = 0;
    while (ready == 0) {
      asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                   : "=r"(ready)
                   : "r"(shared_address(&full_)), "r"(phase)
                   : "memory");
    }
  }

 private:
  std::uint64_t full_;
};

}  // namespace troupe::cuda
