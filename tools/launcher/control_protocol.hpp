#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/base/ids.hpp"
#include "src/base/result.hpp"
#include "tools/launcher/secret.hpp"

/// What launcher and workers say over the control connection: TCP, frames of (length u32, kind u8, payload), little endian.
///   worker → launcher  challenge   rank, a nonce                           before this nothing is known of the other side
///   launcher → worker  answer      a nonce, HMAC over both nonces          the launcher knows the secret
///   worker → launcher  proof       HMAC over both nonces, Hello            so does the worker
///   launcher → worker  welcome     Welcome          or refused: a text, or later: a text, come again
///   launcher → worker  peers       the transport addresses of all workers, when all are here, and again when one was started again
/// Then the connection stays open and silent: its end tells either side that the other has ended.
///   launcher → worker  trace       a folder: write your timeline into it, as rank-N.json; nothing is answered
/// A host agent (rank agent_rank(node)) is welcomed as a worker is; what follows are the texts of host_orders.hpp:
///   launcher → agent   order       start a rank's process, end one, end them all
///   agent → launcher   told        how one ended, which fault rule has fired
/// A tool (rank tool_rank) is welcomed too, then asks and is answered:
///   tool → launcher    request     JSON
///   launcher → tool    response    JSON
namespace troupe {

enum class ControlKind : std::uint8_t {
  challenge = 1,
  answer = 2,
  proof = 3,
  welcome = 4,
  refused = 5,
  peers = 6,
  request = 7,
  response = 8,
  trace = 9,
  order = 10,
  told = 11,
  later = 12
};

/// What a tool that asks something of the job claims to be.
inline constexpr Rank tool_rank{0xfffffffeU};

/// What the host agent of a host claims to be; hosts ("nodes") count from 0, whose launcher is the job's.
inline constexpr std::uint32_t most_nodes = 0xfff0;
[[nodiscard]] constexpr Rank agent_rank(std::uint32_t node) noexcept { return Rank{0xffff0000U + node}; }
[[nodiscard]] constexpr bool is_agent(Rank rank) noexcept { return rank >= agent_rank(0) && rank < agent_rank(most_nodes); }
[[nodiscard]] constexpr std::uint32_t node_of_agent(Rank rank) noexcept { return rank.value() - 0xffff0000U; }
/// Of an agent that starts at this time: an agent that takes the place of another has a later one, so that what the earlier one sends is stale and what it
/// sends itself is not, whichever arrives first. Tenths of a second since 2026, for 13 years.
[[nodiscard]] Incarnation incarnation_of_agent(std::chrono::system_clock::time_point start) noexcept;

inline constexpr std::size_t control_limit_stranger = 256;  ///< bytes of a frame before the peer has proved itself
inline constexpr std::size_t control_limit_member = std::size_t{8} << 20U;

/// What a worker says of itself.
struct Hello {
  Rank first;               ///< of the ranks that its process hosts
  std::uint32_t ranks = 1;  ///< how many: first, first + 1, …
  std::uint32_t world_size = 1;
  std::uint32_t pid = 0;
  std::string host;
  std::vector<std::byte> address;  ///< of its transport
  Incarnation incarnation = {};    ///< of the process
};

/// What it is told.
struct Welcome {
  std::string config;  ///< the merged config, TOML
  std::string job;     ///< unique for each run
  std::string run_folder;
  Incarnation incarnation;
  Step restore_step;               ///< sealed checkpoint to resume from; 0: none
  std::vector<std::byte> address;  ///< of the launcher's transport
};

/// Transport addresses of the job's processes.
struct Peer {
  Rank first;
  std::uint32_t ranks = 1;
  std::uint32_t pid = 0;
  std::string host;
  std::vector<std::byte> address;
  Incarnation incarnation = {};
};

[[nodiscard]] std::string write(const Hello&);
[[nodiscard]] std::string write(const Welcome&);
[[nodiscard]] std::string write(const std::vector<Peer>&);
[[nodiscard]] Result<Hello> read_hello(std::string_view text);
[[nodiscard]] Result<Welcome> read_welcome(std::string_view text);
[[nodiscard]] Result<std::vector<Peer>> read_peers(std::string_view text);

struct ControlFrame {
  ControlKind kind{};
  std::string payload;
};
[[nodiscard]] std::string encode(ControlKind kind, std::string_view payload);

/// Cuts a byte stream into frames. A frame longer than the limit, or of an unknown kind, is an error: drop the connection.
class FrameCutter {
 public:
  explicit FrameCutter(std::size_t limit) : limit_(limit) {}
  void raise_limit(std::size_t limit) noexcept { limit_ = limit; }
  void feed(std::string_view bytes) { pending_ += bytes; }
  [[nodiscard]] Result<std::optional<ControlFrame>> next();

 private:
  std::size_t limit_;
  std::string pending_;
};

/// The two sides' proofs. `nonces` are those of both sides; a proof cannot be replayed or reflected.
[[nodiscard]] Digest launcher_proof(const Secret&, const Digest& worker_nonce, const Digest& launcher_nonce, Rank rank);
[[nodiscard]] Digest worker_proof(const Secret&, const Digest& worker_nonce, const Digest& launcher_nonce, Rank rank);

}  // namespace troupe
