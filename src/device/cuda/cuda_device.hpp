#pragma once
#include <cstdint>
#include <memory>

#include "src/device/device.hpp"

namespace troupe::cuda {

/// What a rank's device is opened with. A value without CUDA types: the worker fills it, the plug-in reads it.
struct CudaOptions {
  std::int16_t index = 0;       ///< among the devices that CUDA shows this process (CUDA_VISIBLE_DEVICES)
  bool deterministic = false;   ///< debug.deterministic: kernels that repeat bit for bit
  std::uint32_t run_ahead = 0;  ///< [runtime] run_ahead: 0 announces on completion
};

/// Throws std::runtime_error in plain words: no such device, a compute capability that the plug-in has no code for.
[[nodiscard]] std::unique_ptr<Device> make_cuda_device(const CudaOptions& options);

/// FLOP/s of dense matrix products; 0: unknown, or the device has none.
struct PeakFlops {
  double bf16 = 0, fp8 = 0;
};
/// Of a device by its name, from the vendor's datasheets. Pure.
[[nodiscard]] PeakFlops peak_flops_of(std::string_view name) noexcept;

}  // namespace troupe::cuda
