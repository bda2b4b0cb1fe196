#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "src/device/device.hpp"

namespace troupe::test {

/// A device whose memory the host cannot touch, as a GPU's. What it hands out for Placement::device are addresses without access: a load or
/// store from the host ends the process (SIGSEGV). Its kernels, `upload`, `download` and whoever asks `reach` find the bytes at a fixed
/// distance. The other way round, a kernel that is given memory of the host which is not of Placement::host throws std::logic_error.
/// Copies are late, as a stream's may be: they happen at the next kernel on their stream, or at `wait`. The arithmetic is `inner`'s.
class SeparateMemoryDevice final : public Device {
 public:
  explicit SeparateMemoryDevice(std::unique_ptr<Device> inner, std::size_t bytes = std::size_t{64} << 20U);
  ~SeparateMemoryDevice() override;
  SeparateMemoryDevice(const SeparateMemoryDevice&) = delete;
  SeparateMemoryDevice& operator=(const SeparateMemoryDevice&) = delete;

  [[nodiscard]] const DeviceInfo& info() const noexcept override { return inner_->info(); }
  [[nodiscard]] std::unique_ptr<Buffer> allocate(std::size_t bytes, Placement placement) override;
  [[nodiscard]] std::size_t allocated_bytes(Placement placement) const noexcept override { return placement == Placement::device ? used_ : pinned_used_; }
  [[nodiscard]] std::unique_ptr<Lane> open_lane(LaneKind kind, Rank rank, const Clock& clock, LaneObserver* observer) override {
    return inner_->open_lane(kind, rank, clock, observer);
  }
  [[nodiscard]] Kernels& kernels() noexcept override { return *kernels_; }
  void upload(Stream& stream, std::span<const std::byte> from, std::span<std::byte> to) override;
  void download(Stream& stream, std::span<const std::byte> from, std::span<std::byte> to) override;
  void wait(Stream& stream) override;
  [[nodiscard]] Stream& setup_stream() noexcept override { return setup_stream_; }

  /// Where a kernel finds what lies at a device address; pinned host memory is where it is. Throws std::logic_error for other memory.
  [[nodiscard]] std::byte* reach(const void* address) const;
  /// Copies that nobody waited for.
  [[nodiscard]] std::size_t copies_under_way() const;

 private:
  struct Region {
    std::byte* begin = nullptr;
    std::size_t size = 0;
    [[nodiscard]] bool holds(const void* address) const noexcept {
      const auto* p = static_cast<const std::byte*>(address);
      return p >= begin && p < begin + size;
    }
  };
  struct Copy {
    const std::byte* from;
    std::byte* to;
    std::size_t bytes;
  };
  void put(Stream& stream, Copy copy);

  std::unique_ptr<Device> inner_;
  std::unique_ptr<Kernels> kernels_;
  Region addresses_, real_, pinned_;  // device addresses; the bytes behind them; Placement::host
  Stream setup_stream_;
  mutable std::mutex mutex_;
  std::size_t used_ = 0, pinned_used_ = 0;
  std::map<const Stream*, std::vector<Copy>> copies_;
};

}  // namespace troupe::test
