#include <ATen/Parallel.h>
#include <sys/sysinfo.h>

#include <array>
#include <atomic>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

#include "src/device/cpu/cpu_kernels.hpp"
#include "src/device/device.hpp"

namespace troupe {
namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

std::size_t host_memory() {
  struct sysinfo facts {};
  return sysinfo(&facts) == 0 ? std::size_t{facts.totalram} * facts.mem_unit : 0;
}

/// torch's thread counts belong to the process, and the one between operations can be set only once.
void set_threads(int threads) {
  static std::once_flag once;
  std::call_once(once, [] { at::set_num_interop_threads(1); });
  at::set_num_threads(threads);
}

using ByteCount = std::shared_ptr<std::atomic<std::size_t>>;  // shared, because a buffer may outlive its device

class CountedBuffer final : public Buffer {
 public:
  CountedBuffer(std::unique_ptr<Buffer> memory, ByteCount count) : memory_(std::move(memory)), count_(std::move(count)) { *count_ += memory_->bytes().size(); }
  ~CountedBuffer() override { *count_ -= memory_->bytes().size(); }
  CountedBuffer(const CountedBuffer&) = delete;
  CountedBuffer& operator=(const CountedBuffer&) = delete;
  [[nodiscard]] std::span<std::byte> bytes() const noexcept override { return memory_->bytes(); }

 private:
  std::unique_ptr<Buffer> memory_;
  ByteCount count_;
};

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int threads) {
    set_threads(threads);
    info_.name = processor_name() + ", " + std::to_string(threads) + (threads == 1 ? " thread" : " threads");
    info_.memory_bytes = host_memory();
  }

  [[nodiscard]] const DeviceInfo& info() const noexcept override { return info_; }
  [[nodiscard]] std::unique_ptr<Buffer> allocate(std::size_t bytes, Placement placement) override {
    return std::make_unique<CountedBuffer>(allocate_host(bytes), counts_[static_cast<std::size_t>(placement)]);
  }
  [[nodiscard]] std::size_t allocated_bytes(Placement placement) const noexcept override { return *counts_[static_cast<std::size_t>(placement)]; }
  [[nodiscard]] std::unique_ptr<Lane> open_lane(LaneKind kind, Rank rank, const Clock& clock, LaneObserver* observer) override {
    return make_thread_lane(kind, rank, clock, observer);
  }
  [[nodiscard]] Kernels& kernels() noexcept override { return kernels_; }
  void upload(Stream&, std::span<const std::byte> from, std::span<std::byte> to) override { copy("upload", from, to); }
  void download(Stream&, std::span<const std::byte> from, std::span<std::byte> to) override { copy("download", from, to); }
  void wait(Stream&) override {}
  [[nodiscard]] bool host_visible() const noexcept override { return true; }
  [[nodiscard]] Stream& setup_stream() noexcept override { return setup_stream_; }

 private:
  static void copy(const char* what, std::span<const std::byte> from, std::span<std::byte> to) {
    if (from.size() != to.size())
      throw std::invalid_argument(std::string(what) + " of " + std::to_string(from.size()) + " bytes into " + std::to_string(to.size()));
    if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
  }

  Stream setup_stream_;
  std::array<ByteCount, 2> counts_{std::make_shared<std::atomic<std::size_t>>(0), std::make_shared<std::atomic<std::size_t>>(0)};
  DeviceInfo info_;
  cpu::CpuKernels kernels_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(int threads) {
  if (threads < 1) throw std::invalid_argument("a CPU device needs at least one thread, found " + std::to_string(threads));
  return std::make_unique<CpuDevice>(threads);
}

}  // namespace troupe
