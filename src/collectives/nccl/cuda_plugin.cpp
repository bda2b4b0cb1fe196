#include "src/collectives/nccl/cuda_plugin.hpp"

#include "src/collectives/nccl/nccl_communicator.hpp"
#include "src/device/cuda/torch_version.hpp"

namespace troupe {
namespace {

std::unique_ptr<Communicator> open_communicator(const std::string& name, Device& device, Communicator& meeting) {
  return make_nccl_communicator({.name = name, .device = device.info().id.index, .kernels = &device.kernels()}, meeting);
}

const CudaPlugin plugin{CudaPlugin::current_interface, cuda::built_with_torch, cuda::running_torch, cuda::make_cuda_device, open_communicator};

}  // namespace
}  // namespace troupe

extern "C" __attribute__((visibility("default"))) const troupe::CudaPlugin* troupe_cuda_plugin() { return &troupe::plugin; }
