#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/base/log.hpp"
#include "src/base/result.hpp"
#include "src/runtime/directory.hpp"
#include "src/transport/transport.hpp"
#include "tools/launcher/control_protocol.hpp"

namespace troupe {

/// Joins a process's Directory to the transport: letters for ranks of other processes go out, what arrives goes to its actor.
/// Knows which process hosts which rank. Any thread.
class LetterLink final : public RemoteSender {
 public:
  using Around = std::function<TransportHandlers(TransportHandlers)>;
  /// `lost`: a peer's process died or its link broke; called on the transport's thread. `around`: puts other receivers before this one.
  /// Starts the transport; throws if it cannot.
  LetterLink(Directory& directory, const Clock& clock, Log& log, const TransportOptions& options, std::function<void(Rank peer, const std::string& cause)> lost,
             const Around& around = {});
  ~LetterLink() override;
  LetterLink(const LetterLink&) = delete;
  LetterLink& operator=(const LetterLink&) = delete;

  [[nodiscard]] std::vector<std::byte> address() const;
  /// The process of ranks first … first + ranks − 1. A link to an earlier incarnation of it is cut.
  [[nodiscard]] Result<void> connect(Rank first, std::uint32_t ranks, Incarnation incarnation, const std::vector<std::byte>& address);
  /// Processes to connect to when the first letter for them comes. Links to earlier incarnations of theirs are cut.
  void know(const std::vector<Peer>& peers);
  /// Connects to the process of a known rank now, if it is not yet. Any thread.
  [[nodiscard]] Result<void> connect_to(Rank rank);
  [[nodiscard]] Transport& transport() noexcept { return *transport_; }
  void send(std::shared_ptr<const Parcel> parcel) override;
  /// Ends the link to every peer, what was sent before arrives first, at most `limit` for all. Blocks; from main() at the end.
  void close(Nanos limit);
  /// What arrives from now on is dropped; call before the actors go.
  void deafen();

 private:
  void forget(Rank first);
  [[nodiscard]] Rank process_of(Rank rank);
  [[nodiscard]] Result<Rank> connected_process_of(Rank rank);

  Directory& directory_;
  const Clock& clock_;
  Log& log_;
  std::mutex connecting_;  ///< one at a time; before mutex_
  std::mutex mutex_;
  std::map<Rank, Rank> processes_;  ///< rank → first rank of its process, connected
  std::map<Rank, Peer> known_;      ///< by rank, not connected yet
  std::vector<Rank> peers_;
  bool deaf_ = false;
  std::unique_ptr<Transport> transport_;
};

/// The session that the job's secret gives, which is new for each run: all processes of the job compute the same.
[[nodiscard]] Session session_of(const Secret& secret);

}  // namespace troupe
