#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "src/runtime/directory.hpp"
#include "src/transport/transport.hpp"

namespace troupe {

/// The Directory's way to other processes: knows which process hosts which rank and hands the letter to the transport. Any thread;
/// never blocks. It must outlive its last use by the Directory, and the transport must outlive it.
class RemoteLinks final : public RemoteSender {
 public:
  /// Told about each letter that could not be delivered; on the sender's or the transport's thread, must not block.
  using OnFailure = std::function<void(Rank to, const std::string& why)>;
  explicit RemoteLinks(OnFailure on_failure = {}) : on_failure_(std::move(on_failure)) {}

  /// The transport, once it exists (its handlers need the PostOffice first). Letters before that fail.
  void use(Transport& transport) { transport_.store(&transport); }
  /// `rank` lives in the process `peer` (named by its first rank). A rank that was not told of is its own process.
  void set_home(Rank rank, Rank peer);
  void send(std::shared_ptr<const Parcel> parcel) override;
  [[nodiscard]] std::uint64_t failures() const noexcept { return failures_.load(); }

 private:
  void failed(Rank to, const std::string& why);
  OnFailure on_failure_;
  std::atomic<Transport*> transport_{nullptr};
  std::mutex mutex_;
  std::map<Rank, Rank> homes_;
  std::atomic<std::uint64_t> failures_{0};
};

/// Handlers that deliver what arrives into a PostOffice, with no slots for payloads: the base for a process's own handlers.
[[nodiscard]] TransportHandlers deliver_into(PostOffice& post_office);

}  // namespace troupe
