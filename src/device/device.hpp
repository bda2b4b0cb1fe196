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

/// device: reached by Kernels, Communicators, upload and download alone. host: of this host, but kernels reach it too (pinned).
enum class Placement { device, host };

/// What a device's memory holds beside allocate()'s. Zeroes: the device cannot tell.
struct MemoryReading {
  std::size_t in_use = 0;   ///< of the whole device, other processes too
  std::size_t scratch = 0;  ///< that this device's kernels keep for themselves
};

struct DeviceInfo {
  DeviceId id;
  std::string name;              ///< "AMD EPYC, 1 thread" or "NVIDIA H200"
  double peak_flops = 0;         ///< dense bf16, FLOP/s; 0: unknown, so MFU is N/A
  double peak_flops_fp8 = 0;     ///< the same in fp8; 0: unknown, or it has none
  std::size_t memory_bytes = 0;  ///< 0: unknown
  bool fp8_emulated = true;
};

/// The seam behind which CPU and CUDA differ: memory, lanes, arithmetic. One per rank. Not thread-safe but where said.
class Device {
 public:
  virtual ~Device() = default;
  [[nodiscard]] virtual const DeviceInfo& info() const noexcept = 0;
  /// Throws std::bad_alloc with what was asked and what is free.
  [[nodiscard]] virtual std::unique_ptr<Buffer> allocate(std::size_t bytes, Placement placement) = 0;
  /// Bytes of this placement that are handed out now. Any thread.
  [[nodiscard]] virtual std::size_t allocated_bytes(Placement placement) const noexcept = 0;
  /// Asks the device now; not for the step's path.
  [[nodiscard]] virtual MemoryReading measure_memory() const { return {}; }
  [[nodiscard]] virtual std::unique_ptr<Lane> open_lane(LaneKind kind, Rank rank, const Clock& clock, LaneObserver* observer) = 0;
  [[nodiscard]] virtual Kernels& kernels() noexcept = 0;  ///< for lanes' threads

  /// Memory of Placement::device is nothing that the host may touch: bytes come and go by these two, in the order of `stream`, from any
  /// lane's thread. `to` has the size of `from`, else std::invalid_argument. The host's side stays as it is until the operation's lane
  /// reports it done, or `wait` has returned; it may be any host memory (from Placement::host it need not be copied twice).
  virtual void upload(Stream& stream, std::span<const std::byte> from, std::span<std::byte> to) = 0;
  virtual void download(Stream& stream, std::span<const std::byte> from, std::span<std::byte> to) = 0;
  /// Blocks until all that was put on `stream` is done. For the set-up and for lanes that are threads of the host (disk, copy, storage).
  virtual void wait(Stream& stream) = 0;
  /// Whether the host may read and write Placement::device itself; what may be saved then is a copy, nothing else.
  [[nodiscard]] virtual bool host_visible() const noexcept { return false; }
  /// The stream of the main thread, for work beside the lanes: initialising, restoring, sampling. Not while lanes are at work.
  [[nodiscard]] virtual Stream& setup_stream() noexcept = 0;

  /// The same, done on return: on the set-up's stream, behind all that was put there before.
  void upload_now(std::span<const std::byte> from, std::span<std::byte> to) {
    upload(setup_stream(), from, to);
    wait(setup_stream());
  }
  void download_now(std::span<const std::byte> from, std::span<std::byte> to) {
    download(setup_stream(), from, to);
    wait(setup_stream());
  }
};

/// Contiguous memory that a view names, as bytes.
[[nodiscard]] inline std::span<std::byte> bytes_of(const TensorView& view) noexcept { return {view.data, view.bytes()}; }

/// The CPU of this host; `threads` intra-operation threads for all kernels of the process. Built only with LibTorch (target troupe_device_cpu).
[[nodiscard]] std::unique_ptr<Device> make_cpu_device(int threads);

/// Zeroed, aligned host memory; what every host placement and the CPU use. Throws std::bad_alloc.
[[nodiscard]] std::unique_ptr<Buffer> allocate_host(std::size_t bytes);

}  // namespace troupe
