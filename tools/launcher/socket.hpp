#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "src/base/result.hpp"

namespace troupe {

/// Owns a file descriptor. A value that moves.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor();
  [[nodiscard]] int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// A listening TCP socket, non-blocking, closed on exec. Port 0: any free one. The error names address and port.
[[nodiscard]] Result<Descriptor> listen_tcp(const std::string& address, std::uint16_t port);
[[nodiscard]] std::uint16_t local_port(const Descriptor& socket);
/// Connects within `limit`, or until the descriptor `interrupt` can be read (-1: none); non-blocking afterwards.
[[nodiscard]] Result<Descriptor> connect_tcp(const std::string& host, std::uint16_t port, std::chrono::milliseconds limit, int interrupt = -1);

struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};
/// "host:port" or "[v6]:port".
[[nodiscard]] Result<HostPort> parse_host_port(std::string_view text);

/// All of `bytes` within `limit`.
[[nodiscard]] Result<void> write_all(const Descriptor& socket, std::string_view bytes, std::chrono::milliseconds limit);

/// An eventfd: any thread rings, one thread polls.
class Bell {
 public:
  Bell();
  void ring() const noexcept;
  void silence() const noexcept;  ///< after poll() said it rang
  [[nodiscard]] int get() const noexcept { return descriptor_.get(); }

 private:
  Descriptor descriptor_;
};

}  // namespace troupe
