#pragma once
// Hopper's copies of whole ranges from device to shared memory, done by a unit of its own and counted by a barrier. Device code for sm_90 only.
#include <cstdint>

namespace troupe::cuda {

__device__ inline std::uint32_t shared_address(const void* pointer) { return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer)); }

/// Counts bytes that arrive in this block's shared memory. One thread says how many are to come in a phase, any thread waits for them; phases
/// alternate from 0. Waiting orders nothing but these bytes: unlike a barrier of the cluster it does not wait for stores to device memory.
class ByteBarrier {
 public:
  /// By one thread, before a barrier of all that will use it.
  __device__ void prepare() {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address()) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  /// By one thread, once a phase; bytes may arrive before.
  __device__ void expect(std::uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()), "r"(bytes) : "memory");
  }
  __device__ void wait(std::uint32_t phase) {
    std::uint32_t ready = 0;
    while (ready == 0) {
      asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                   : "=r"(ready)
                   : "r"(address()), "r"(phase)
                   : "memory");
    }
  }
  [[nodiscard]] __device__ std::uint32_t address() const { return shared_address(&state_); }

 private:
  std::uint64_t state_;
};

/// Starts a copy of a range of device memory by the copy unit; one thread, when all have read what the room held. Addresses and bytes: multiples
/// of 16. The bytes count towards `arrived`.
__device__ inline void copy_bulk(void* to, const void* from, std::uint32_t bytes, const ByteBarrier& arrived) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)), "l"(from), "r"(bytes),
               "r"(arrived.address())
               : "memory");
}

/// Writes two floats to the place that corresponds to `to` in block `rank` of the cluster; 8 bytes that count towards that block's `arrived`.
__device__ inline void send_pair(float a, float b, const void* to, const ByteBarrier& arrived, std::uint32_t rank) {
  std::uint32_t place = 0, barrier = 0;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(place) : "r"(shared_address(to)), "r"(rank));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier) : "r"(arrived.address()), "r"(rank));
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(place), "f"(a), "f"(b), "r"(barrier) : "memory");
}

}  // namespace troupe::cuda
