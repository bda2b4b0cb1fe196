#include "src/device/cuda/cuda_device.hpp"

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "src/device/cuda/cuda_kernels.hpp"
#include "src/device/cuda/cuda_stream.hpp"
#include "src/device/cuda/kernels/element.hpp"
#include "src/device/cuda/stream_executor.hpp"

namespace troupe::cuda {
namespace {

constexpr int oldest_major = 8;  // the plug-in carries PTX of compute capability 8.0 and code for 9.0

std::string in_gibibytes(std::size_t bytes) {
  const auto hundredths = static_cast<std::uint64_t>(static_cast<double>(bytes) / 10737418.24 + 0.5);
  return std::to_string(hundredths / 100) + "." + std::to_string(hundredths % 100 / 10) + std::to_string(hundredths % 10) + " GiB";
}

/// bad_alloc that says what was asked, what is free, and what helps.
class OutOfDeviceMemory final : public std::bad_alloc {
 public:
  explicit OutOfDeviceMemory(std::string what) : what_(std::move(what)) {}
  [[nodiscard]] const char* what() const noexcept override { return what_.c_str(); }

 private:
  std::string what_;
};

[[noreturn]] void out_of_memory(std::size_t bytes, Placement placement, const std::string& device) {
  (void)cudaGetLastError();  // not sticky: the next call must not report it again
  std::size_t free = 0, total = 0;
  (void)cudaMemGetInfo(&free, &total);
  if (placement == Placement::host) throw OutOfDeviceMemory("out of pinned host memory: " + in_gibibytes(bytes) + " asked; fewer slots.snapshots take less");
  throw OutOfDeviceMemory("out of memory on " + device + ": " + in_gibibytes(bytes) + " asked, " + in_gibibytes(free) + " of " + in_gibibytes(total) +
                          " free; a smaller training.local_batch_size or seq_len, activation_checkpoint.mode = \"full\", or more ranks take less");
}

using ByteCount = std::shared_ptr<std::atomic<std::size_t>>;  // shared, because a buffer may outlive its device

class CudaBuffer final : public Buffer {
 public:
  CudaBuffer(std::size_t bytes, Placement placement, int device, const std::string& name, ByteCount count)
      : size_(bytes), placement_(placement), device_(device), count_(std::move(count)) {
    use_device(device);
    const std::size_t least = std::max<std::size_t>(bytes, 1);
    const cudaError_t code = placement == Placement::device ? cudaMalloc(&data_, least) : cudaHostAlloc(&data_, least, cudaHostAllocPortable);
    if (code == cudaErrorMemoryAllocation) out_of_memory(bytes, placement, name);
    check(code, placement == Placement::device ? "cudaMalloc" : "cudaHostAlloc");
    if (placement == Placement::host) {
      std::memset(data_, 0, bytes);
    } else {
      check(cudaMemset(data_, 0, bytes), "cudaMemset");
      check(cudaStreamSynchronize(nullptr), "cudaMemset");
    }
    *count_ += size_;
  }
  ~CudaBuffer() override {
    *count_ -= size_;
    (void)cudaSetDevice(device_);
    (void)(placement_ == Placement::device ? cudaFree(data_) : cudaFreeHost(data_));
  }
  CudaBuffer(const CudaBuffer&) = delete;
  CudaBuffer& operator=(const CudaBuffer&) = delete;
  [[nodiscard]] std::span<std::byte> bytes() const noexcept override { return {static_cast<std::byte*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  std::size_t size_;
  Placement placement_;
  int device_;
  ByteCount count_;
};

/// The device's facts, or why it cannot be used.
cudaDeviceProp facts_of(int index) {
  int count = 0;
  if (const cudaError_t code = cudaGetDeviceCount(&count); code != cudaSuccess)
    throw std::runtime_error(std::string("no CUDA device can be used: ") + cudaGetErrorString(code) + " (" + cudaGetErrorName(code) +
                             "); nvidia-smi shows what the driver sees");
  if (index >= count)
    throw std::runtime_error("CUDA device " + std::to_string(index) + " was asked for, but this process sees " + std::to_string(count) +
                             " (CUDA_VISIBLE_DEVICES): start at most as many ranks on a host as it has devices");
  cudaDeviceProp facts{};
  check(cudaGetDeviceProperties(&facts, index), "cudaGetDeviceProperties");
  if (facts.major < oldest_major)
    throw std::runtime_error("CUDA device " + std::to_string(index) + " (" + facts.name + ") has compute capability " + std::to_string(facts.major) + "." +
                             std::to_string(facts.minor) + ": this build's kernels need 8.0 or newer, and are made for 9.0");
  return facts;
}

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const CudaOptions& options)
      : index_(options.index),
        facts_(facts_of(options.index)),
        setup_stream_(options.index, CudaStream::Priority::normal),
        executor_(std::make_shared<StreamExecutor>(options.index, options.run_ahead)),
        kernels_(options.index, options.deterministic) {
    info_.id = {DeviceKind::cuda, options.index};
    info_.name = facts_.name;
    const PeakFlops peak = peak_flops_of(facts_.name);
    info_.peak_flops = peak.bf16;
    info_.peak_flops_fp8 = peak.fp8;
    info_.memory_bytes = facts_.totalGlobalMem;
    info_.fp8_emulated = false;
  }

  [[nodiscard]] const DeviceInfo& info() const noexcept override { return info_; }
  [[nodiscard]] std::unique_ptr<Buffer> allocate(std::size_t bytes, Placement placement) override {
    return std::make_unique<CudaBuffer>(bytes, placement, index_, info_.name, counts_[static_cast<std::size_t>(placement)]);
  }
  [[nodiscard]] std::size_t allocated_bytes(Placement placement) const noexcept override { return *counts_[static_cast<std::size_t>(placement)]; }
  [[nodiscard]] MemoryReading measure_memory() const override {
    use_device(index_);
    MemoryReading reading;
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    reading.in_use = total - free;
    reading.scratch = kernels_.scratch_bytes();
    return reading;
  }
  [[nodiscard]] std::unique_ptr<Lane> open_lane(LaneKind kind, Rank rank, const Clock& clock, LaneObserver* observer) override {
    const bool is_stream = kind == LaneKind::compute || kind == LaneKind::comm || kind == LaneKind::optimizer;
    return is_stream ? executor_->open_lane(kind, clock, observer) : make_thread_lane(kind, rank, clock, observer);
  }
  [[nodiscard]] Kernels& kernels() noexcept override { return kernels_; }
  void upload(Stream& stream, std::span<const std::byte> from, std::span<std::byte> to) override { copy("upload", stream, from, to, cudaMemcpyHostToDevice); }
  void download(Stream& stream, std::span<const std::byte> from, std::span<std::byte> to) override {
    copy("download", stream, from, to, cudaMemcpyDeviceToHost);
  }
  void wait(Stream& stream) override { check(cudaStreamSynchronize(native_stream(stream, index_)), "cudaStreamSynchronize"); }
  [[nodiscard]] Stream& setup_stream() noexcept override { return setup_stream_; }

 private:
  void copy(const char* what, Stream& stream, std::span<const std::byte> from, std::span<std::byte> to, cudaMemcpyKind kind) const {
    if (from.size() != to.size())
      throw std::invalid_argument(std::string(what) + " of " + std::to_string(from.size()) + " bytes into " + std::to_string(to.size()));
    if (!from.empty()) check(cudaMemcpyAsync(to.data(), from.data(), from.size(), kind, native_stream(stream, index_)), what);
  }

  const int index_;
  const cudaDeviceProp facts_;
  DeviceInfo info_;
  std::array<ByteCount, 2> counts_{std::make_shared<std::atomic<std::size_t>>(0), std::make_shared<std::atomic<std::size_t>>(0)};
  CudaStream setup_stream_;
  std::shared_ptr<StreamExecutor> executor_;
  CudaKernels kernels_;
};

}  // namespace

PeakFlops peak_flops_of(std::string_view name) noexcept {
  constexpr std::array<std::pair<std::string_view, PeakFlops>, 6> known{{{"H200", {989e12, 1979e12}},
                                                                         {"H100 PCIe", {756e12, 1513e12}},
                                                                         {"H100", {989e12, 1979e12}},
                                                                         {"GH200", {989e12, 1979e12}},
                                                                         {"B200", {2250e12, 4500e12}},
                                                                         {"A100", {312e12, 0}}}};
  for (const auto& [part, peak] : known) {
    if (name.find(part) != std::string_view::npos) return peak;
  }
  return {};
}

std::unique_ptr<Device> make_cuda_device(const CudaOptions& options) { return std::make_unique<CudaDevice>(options); }

}  // namespace troupe::cuda
