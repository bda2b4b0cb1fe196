#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "src/base/result.hpp"

namespace troupe {

/// Where a process lives, for its peers on the same host: `host` is the same for processes of one user that see each other's numbers.
struct ProcessOnHost {
  std::uint64_t host = 0;
  std::uint32_t process = 0;
  [[nodiscard]] static ProcessOnHost self();
};

/// An address for peers: UCX's, with this process behind it. UCX does not read past its own.
[[nodiscard]] std::string address_with_process(std::string ucx_address, const ProcessOnHost& process);
[[nodiscard]] std::optional<ProcessOnHost> process_in(const std::string& address);

/// Memory that two processes of one host share, through which the payloads of one direction of a link go: the sender copies in, the
/// receiver out. It is a memfd without a name in any folder, so nothing of it stays when both are gone, however they went. The peer may
/// write whatever it likes: each side keeps its own position, and takes the other's only as far as it is possible.
class SharedRing {
 public:
  static constexpr std::uint64_t data_bytes = 1024 * 1024;  ///< what a processor's own cache holds
  static constexpr std::uint64_t grants_at_once = 64;

  struct Header {
    std::atomic<std::uint64_t> magic;
    alignas(64) std::atomic<std::uint64_t> written;  ///< bytes, by the sender
    std::atomic<std::uint64_t> heard;                ///< grants read, by the sender
    std::atomic<std::uint32_t> sender_sleeps;        ///< a change needs a doorbell
    alignas(64) std::atomic<std::uint64_t> taken;    ///< bytes, by the receiver
    std::atomic<std::uint64_t> granted;              ///< grants written, by the receiver
    std::atomic<std::uint32_t> receiver_sleeps;
    alignas(64) std::atomic<std::uint64_t> grants[grants_at_once];  ///< twice the sequence number of a letter, plus one if its payload is refused
  };

  /// The sender's: new memory, whose size nobody can change.
  [[nodiscard]] static Result<std::unique_ptr<SharedRing>> make(const std::string& name);
  /// The receiver's: the memory of that name in the sender's process. An Error says why it cannot be used.
  [[nodiscard]] static Result<std::unique_ptr<SharedRing>> find(const ProcessOnHost& sender, const std::string& name);
  ~SharedRing();
  SharedRing(const SharedRing&) = delete;
  SharedRing& operator=(const SharedRing&) = delete;

  [[nodiscard]] Header& header() const noexcept { return *static_cast<Header*>(memory_); }
  /// The bytes from `position` on, up to the end of the memory.
  [[nodiscard]] std::span<std::byte> data(std::uint64_t position) const noexcept;
  /// Both have it: it needs no descriptor any more.
  void forget_descriptor() noexcept;

 private:
  SharedRing(void* memory, int descriptor) : memory_(memory), descriptor_(descriptor) {}
  void* memory_;
  int descriptor_;
};

}  // namespace troupe
