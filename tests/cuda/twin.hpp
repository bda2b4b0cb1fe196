#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "src/collectives/nccl/cuda_plugin.hpp"
#include "src/device/device.hpp"

namespace troupe::test {

/// The plug-in of this program; loaded by `main` before anything of torch runs.
[[nodiscard]] const CudaPlugin& plugin();

/// A CPU and a GPU that are given the same values and the same calls.
struct Devices {
  explicit Devices(const cuda::CudaOptions& options = {}) : cpu(make_cpu_device(4)), gpu(plugin().open_device(options)) {}
  std::unique_ptr<Device> cpu, gpu;
};

/// A tensor that lies on both, with the same bytes at first.
class Twin {
 public:
  /// Normal values that the type holds exactly (integers: zero).
  Twin(Devices& devices, DType dtype, const Shape& shape, double deviation = 1.0);
  [[nodiscard]] TensorView on_cpu() const { return TensorView::contiguous(host_->bytes().data(), dtype_, shape_); }
  [[nodiscard]] TensorView on_gpu() const { return TensorView::contiguous(device_->bytes().data(), dtype_, shape_, devices_.gpu->info().id); }
  [[nodiscard]] TensorView on(const Device& device) const { return &device == devices_.cpu.get() ? on_cpu() : on_gpu(); }
  /// Host values to both.
  void set(const std::function<double(std::size_t)>& value);
  /// ‖gpu − cpu‖ / ‖cpu‖ in fp64; NaN where either holds one.
  [[nodiscard]] double difference() const;
  [[nodiscard]] bool same_bits() const;
  /// What the GPU has, in fp64.
  [[nodiscard]] std::vector<double> found() const;
  [[nodiscard]] std::vector<std::byte> gpu_bytes() const;

 private:
  void upload();
  Devices& devices_;
  DType dtype_;
  Shape shape_;
  std::unique_ptr<Buffer> host_, device_;
};

/// Tests of operations that both devices do, with values of a type.
class OnBothDevices : public ::testing::TestWithParam<DType> {
 protected:
  /// `call(device, kernels, stream)` for each; returns when the GPU is done.
  template <class Call>
  void on_both(Call&& call) {
    call(*devices_.cpu, devices_.cpu->kernels(), devices_.cpu->setup_stream());
    call(*devices_.gpu, devices_.gpu->kernels(), devices_.gpu->setup_stream());
    devices_.gpu->wait(devices_.gpu->setup_stream());
  }
  [[nodiscard]] Twin twin(DType dtype, const Shape& shape, double deviation = 1.0) { return {devices_, dtype, shape, deviation}; }
  /// Of a product or a norm whose inputs are of the type: the CPU rounds once as well, so the two may differ by a last place here and there.
  [[nodiscard]] static double tolerance(DType dtype) { return dtype == DType::bf16 ? 4e-3 : 3e-6; }

  Devices devices_;
};

/// A communicator of one member that works on no memory: where a GPU's communicator meets.
class Alone final : public Communicator {
 public:
  [[nodiscard]] std::uint32_t rank() const noexcept override { return 0; }
  [[nodiscard]] std::uint32_t size() const noexcept override { return 1; }
  void all_gather(Stream&, std::span<const GatherPiece>) override {}
  void reduce_scatter(Stream&, std::span<const ReducePiece> pieces) override {
    for (const ReducePiece& piece : pieces)
      for (std::size_t i = 0; i < piece.count; ++i) piece.output[i] = piece.input[i] + (piece.accumulate ? piece.output[i] : 0.0F);
  }
  void all_reduce(Stream&, TensorView, Reduction) override {}
  void broadcast(Stream&, std::span<std::byte>, std::uint32_t) override {}
  void all_to_all(Stream&, std::span<const std::byte>, std::span<std::byte>) override {}
  void abort(const std::string&) noexcept override {}
};

}  // namespace troupe::test
