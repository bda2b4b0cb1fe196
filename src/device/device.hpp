#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "src/device/kernels.hpp"
#include "src/device/lane.hpp"

namespace troupe {

/// Owned memory of a device, 64-byte aligned (page-aligned over 1 MiB), zero-filled.
class Buffer {
 public:
  virtual ~Buffer() = default;
  [[nodiscard]] virtual std::span<std::byte> bytes() const noexcept = 0;
};

enum class Placement { device, host };  ///< host: pinned where the device has a use for it

struct DeviceInfo {
  DeviceId id;
  std::string name;                ///< "AMD EPYC, 1 thread" or "NVIDIA H200"
  double peak_flops = 0;           ///< dense bf16, FLOP/s; 0: unknown, so MFU is N/A
  std::size_t memory_bytes = 0;    ///< 0: unknown
  bool fp8_emulated = true;
};

/// The seam behind which CPU and CUDA differ: memory, lanes, arithmetic. One per rank. Not thread-safe but where said.
class Device {
 public:
  virtual ~Device() = default;
  [[nodiscard]] virtual const DeviceInfo& info() const noexcept = 0;
  /// Throws std::bad_alloc with what was asked and what is free.
  [[nodiscard]] virtual std::unique_ptr<Buffer> allocate(std::size_t bytes, Placement placement) = 0;
  [[nodiscard]] virtual std::unique_ptr<Lane> open_lane(LaneKind kind, Rank rank, const Clock& clock, LaneObserver* observer) = 0;
  [[nodiscard]] virtual Kernels& kernels() noexcept = 0;  ///< for lanes' threads
};

/// The CPU of this host; `threads` intra-operation threads for all kernels of the process. Built only with LibTorch (target troupe_device_cpu).
[[nodiscard]] std::unique_ptr<Device> make_cpu_device(int threads);

/// Zeroed, aligned host memory; what every host placement and the CPU use. Throws std::bad_alloc.
[[nodiscard]] std::unique_ptr<Buffer> allocate_host(std::size_t bytes);

}  // namespace troupe
