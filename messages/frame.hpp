#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "messages/letter.hpp"
#include "src/base/ids.hpp"
#include "src/base/result.hpp"

namespace troupe {

/// Between processes a letter travels in a frame: header, the letter's words, MAC. All numbers little-endian.
/// The MAC (HMAC-SHA256 under the session's key, first 16 bytes) covers header and words; the header holds size and XXH3-64 of the payload.

/// What all processes of a run share. The key comes over the launcher's control connection, never in a letter.
struct Session {
  std::uint64_t job = 0;
  std::array<std::byte, 32> key{};
};

/// One end of a link: a process, named by its first rank, in one of its lives.
struct Party {
  Rank rank;
  Incarnation incarnation;
  auto operator<=>(const Party&) const = default;
};

/// What a frame is. Only letters have words, and only `payload_hash` has another frame's length and hash.
enum class FrameType : std::uint16_t {
  letter = 1,
  goodbye = 2,       ///< the sender sends no more
  goodbye_seen = 3,  ///< everything before the goodbye has arrived
  letter_ahead = 4,  ///< a letter whose payload comes through the shared ring; it counts only with its payload_hash
  payload_hash = 5,  ///< length and hash of a payload that has gone through the ring, in the order in which they went
  ring_ready = 6,    ///< the sender has made a ring for payloads to the receiver
  ring_taken = 7,    ///< the ring is mapped: payloads may come through it
  doorbell = 8,      ///< look at the ring
};
[[nodiscard]] constexpr bool has_letter(FrameType type) noexcept { return type == FrameType::letter || type == FrameType::letter_ahead; }

struct FrameHeader {
  FrameType type = FrameType::letter;
  std::uint64_t job = 0;
  Party sender, receiver;
  std::uint64_t sequence = 0;  ///< of this link and direction, from 1, strictly increasing
  EpochId epoch;               ///< the letter's
  std::uint64_t words = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t payload_hash = 0;  ///< XXH3-64; 0 without a payload, and in letter_ahead
};

inline constexpr std::uint32_t frame_magic = 0x4c505254;  ///< "TRPL"
inline constexpr std::uint16_t frame_version = 1;
inline constexpr std::size_t frame_header_bytes = 72;
inline constexpr std::size_t frame_mac_bytes = 16;
/// UCX carries a frame as the header of an active message, which is limited to a little over 8,100 bytes.
inline constexpr std::size_t max_frame_bytes = 8000;

/// Why a frame was refused.
enum class FrameProblem : std::uint8_t {
  length,
  magic,
  mac,
  type,
  job,
  sender,
  receiver,
  incarnation,
  sequence,
  structure,
  kind,
  value,
  epoch,
  payload,
  count
};
inline constexpr std::size_t frame_problem_count = static_cast<std::size_t>(FrameProblem::count);
[[nodiscard]] const char* name_of(FrameProblem problem) noexcept;  ///< static storage

/// XXH3-64 of a payload in host memory; 0 for none.
[[nodiscard]] std::uint64_t payload_hash(std::span<const std::byte> payload) noexcept;

/// The sender that a frame claims, before anything is checked; for choosing its opener. False if it is too short to say.
[[nodiscard]] bool claimed_sender(std::span<const std::byte> frame, Party& sender) noexcept;

/// HMAC-SHA256 with one key; one thread at a time.
class SessionMac {
 public:
  explicit SessionMac(std::span<const std::byte, 32> key);
  ~SessionMac();
  SessionMac(const SessionMac&) = delete;
  SessionMac& operator=(const SessionMac&) = delete;
  void compute(std::span<const std::byte> data, std::span<std::byte, frame_mac_bytes> mac);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Makes the frames of one direction of a link, in the order in which they must be sent. One thread at a time.
class FrameSealer {
 public:
  FrameSealer(const Session& session, Party self, Party peer);
  /// `hash`: of the parcel's payload, from payload_hash(). An Error, naming kind and length, if the frame would exceed max_frame_bytes.
  [[nodiscard]] Result<std::vector<std::byte>> seal(const Parcel& parcel, std::uint64_t hash);
  /// A letter_ahead.
  [[nodiscard]] Result<std::vector<std::byte>> seal_ahead(const Parcel& parcel);
  /// A frame without words; length and hash are payload_hash's.
  [[nodiscard]] std::vector<std::byte> seal(FrameType type, std::uint64_t payload_bytes = 0, std::uint64_t hash = 0);
  /// Of the frame sealed last.
  [[nodiscard]] std::uint64_t sequence() const noexcept { return sequence_; }

 private:
  Result<std::vector<std::byte>> seal_letter(FrameType type, const Parcel& parcel, std::uint64_t hash);
  std::vector<std::byte> finish(FrameHeader header, std::span<const std::byte> words);
  Session session_;
  Party self_, peer_;
  SessionMac mac_;
  std::uint64_t sequence_ = 0;
};

/// A frame that passed every check. `words` is the letter, empty for another type.
struct OpenedFrame {
  FrameHeader header;
  kj::Array<capnp::word> words;
};

/// How many frames were refused for which reason. Any thread.
class FrameCounts {
 public:
  void add(FrameProblem problem) noexcept { counts_[static_cast<std::size_t>(problem)].fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t of(FrameProblem problem) const noexcept { return counts_[static_cast<std::size_t>(problem)].load(std::memory_order_relaxed); }

 private:
  std::array<std::atomic<std::uint64_t>, frame_problem_count> counts_{};
};

/// Checks the frames of one direction of a link. Whatever the bytes are, open() answers with a frame or an Error and counts the reason;
/// it throws nothing and reads nothing outside of them. One thread at a time.
class FrameOpener {
 public:
  /// `counts` outlives the opener.
  FrameOpener(const Session& session, Party self, Party peer, FrameCounts& counts);
  [[nodiscard]] Result<OpenedFrame> open(std::span<const std::byte> frame);

 private:
  Session session_;
  Party self_, peer_;
  SessionMac mac_;
  FrameCounts& counts_;
  std::uint64_t last_sequence_ = 0;
};

}  // namespace troupe
