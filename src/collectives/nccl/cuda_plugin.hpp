#pragma once
#include "src/collectives/communicator.hpp"
#include "src/device/cuda/cuda_device.hpp"
#include "src/device/device.hpp"

namespace troupe {

/// What libtroupe_cuda.so offers: everything of a worker that needs CUDA. The worker loads it before torch is asked anything (ATen caches
/// the answer "no CUDA"), looks `symbol` up, checks `interface` and `torch`, and never unloads it. Both sides are built from one tree, so
/// the functions take and give C++ objects; errors are exceptions.
struct CudaPlugin {
  static constexpr const char* symbol = "troupe_cuda_plugin";
  static constexpr unsigned current_interface = 1;
  unsigned interface;  ///< of the tree that it was built from: `current_interface`
  const char* torch;   ///< the version that it was built with, "2.11.0"
  /// The version of the torch that this process has loaded. Only after the plug-in is loaded: the question asks for CUDA.
  std::string (*running_torch)();
  std::unique_ptr<Device> (*open_device)(const cuda::CudaOptions& options);
  /// NCCL's, see nccl_communicator.hpp; `device` is one of open_device's.
  std::unique_ptr<Communicator> (*open_communicator)(const std::string& name, Device& device, Communicator& meeting);
};

using GetCudaPlugin = const CudaPlugin* (*)();

}  // namespace troupe
