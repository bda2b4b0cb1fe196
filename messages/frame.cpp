#include "messages/frame.hpp"

#include <openssl/crypto.h>
#ifdef TROUPE_XXHASH_DISPATCH
#include <xxh_x86dispatch.h>  // XXH3_64bits becomes the widest version that this processor has: 55 instead of 20 GB/s here
#else
#include <xxhash.h>
#endif

#include <algorithm>
#include <bit>
#include <cstring>

#include "messages/kinds.hpp"
#include "messages/open.hpp"

namespace troupe {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are little-endian; a big-endian host needs byte swaps here");

/// A cursor over a header's bytes.
class Writer {
 public:
  explicit Writer(std::byte* at) : at_(at) {}
  template <class T>
  void put(T value) {
    std::memcpy(at_, &value, sizeof value);
    at_ += sizeof value;
  }

 private:
  std::byte* at_;
};

class Scanner {
 public:
  explicit Scanner(const std::byte* at) : at_(at) {}
  template <class T>
  T take() {
    T value;
    std::memcpy(&value, at_, sizeof value);
    at_ += sizeof value;
    return value;
  }

 private:
  const std::byte* at_;
};

constexpr std::size_t sender_offset = 16;  // magic, version, type, job

void write_header(const FrameHeader& header, std::byte* at) {
  Writer writer(at);
  writer.put(frame_magic);
  writer.put(frame_version);
  writer.put(static_cast<std::uint16_t>(header.type));
  writer.put(header.job);
  for (const Party& party : {header.sender, header.receiver}) {
    writer.put(party.rank.value());
    writer.put(party.incarnation.value());
  }
  writer.put(header.sequence);
  writer.put(header.epoch.value());
  writer.put(header.words);
  writer.put(header.payload_bytes);
  writer.put(header.payload_hash);
}

/// The header behind magic and version.
FrameHeader read_header(const std::byte* at) {
  Scanner scanner(at + sizeof(frame_magic) + sizeof(frame_version));
  FrameHeader header;
  header.type = static_cast<FrameType>(scanner.take<std::uint16_t>());
  header.job = scanner.take<std::uint64_t>();
  for (Party* party : {&header.sender, &header.receiver}) {
    party->rank = Rank{scanner.take<std::uint32_t>()};
    party->incarnation = Incarnation{scanner.take<std::uint32_t>()};
  }
  header.sequence = scanner.take<std::uint64_t>();
  header.epoch = EpochId{scanner.take<std::uint64_t>()};
  header.words = scanner.take<std::uint64_t>();
  header.payload_bytes = scanner.take<std::uint64_t>();
  header.payload_hash = scanner.take<std::uint64_t>();
  return header;
}

std::string text(const Party& party) { return "rank " + std::to_string(party.rank.value()) + " incarnation " + std::to_string(party.incarnation.value()); }

}  // namespace

const char* name_of(FrameProblem problem) noexcept {
  constexpr std::array<const char*, frame_problem_count> names = {"length",      "magic",    "mac",       "type", "job",   "sender", "receiver",
                                                                  "incarnation", "sequence", "structure", "kind", "value", "epoch",  "payload"};
  return problem < FrameProblem::count ? names[static_cast<std::size_t>(problem)] : "unknown";
}

std::uint64_t payload_hash(std::span<const std::byte> payload) noexcept { return payload.empty() ? 0 : XXH3_64bits(payload.data(), payload.size()); }

bool claimed_sender(std::span<const std::byte> frame, Party& sender) noexcept {
  if (frame.size() < frame_header_bytes + frame_mac_bytes) return false;
  Scanner scanner(frame.data() + sender_offset);
  sender.rank = Rank{scanner.take<std::uint32_t>()};
  sender.incarnation = Incarnation{scanner.take<std::uint32_t>()};
  return true;
}

FrameSealer::FrameSealer(const Session& session, Party self, Party peer) : session_(session), self_(self), peer_(peer), mac_(session.key) {}

Result<std::vector<std::byte>> FrameSealer::seal(const Parcel& parcel, std::uint64_t hash) { return seal_letter(FrameType::letter, parcel, hash); }
Result<std::vector<std::byte>> FrameSealer::seal_ahead(const Parcel& parcel) { return seal_letter(FrameType::letter_ahead, parcel, 0); }

Result<std::vector<std::byte>> FrameSealer::seal_letter(FrameType type, const Parcel& parcel, std::uint64_t hash) {
  const auto words = parcel.bytes();
  const auto envelope = parcel.envelope();
  if (const std::size_t length = frame_header_bytes + words.size() + frame_mac_bytes; length > max_frame_bytes) {
    return Error{"cannot send a letter of kind " + std::string(name_of(envelope.getBody().which())) + " to rank " + std::to_string(peer_.rank.value()) +
                 ": its frame has " + std::to_string(length) + " bytes, the limit between processes is " + std::to_string(max_frame_bytes) +
                 "; put bulk data into a slot"};
  }
  FrameHeader header;
  header.type = type;
  header.epoch = EpochId{envelope.getWhere().getEpoch()};
  header.payload_bytes = parcel.lease() ? parcel.lease().bytes().size() : 0;
  header.payload_hash = hash;
  return finish(header, words);
}

std::vector<std::byte> FrameSealer::seal(FrameType type, std::uint64_t payload_bytes, std::uint64_t hash) {
  FrameHeader header;
  header.type = type;
  header.payload_bytes = payload_bytes;
  header.payload_hash = hash;
  return finish(header, {});
}

std::vector<std::byte> FrameSealer::finish(FrameHeader header, std::span<const std::byte> words) {
  header.job = session_.job;
  header.sender = self_;
  header.receiver = peer_;
  header.sequence = ++sequence_;
  header.words = words.size() / sizeof(capnp::word);
  std::vector<std::byte> frame(frame_header_bytes + words.size() + frame_mac_bytes);
  write_header(header, frame.data());
  std::copy(words.begin(), words.end(), frame.begin() + frame_header_bytes);
  const auto covered = std::span(frame).first(frame.size() - frame_mac_bytes);
  mac_.compute(covered, std::span(frame).last<frame_mac_bytes>());
  return frame;
}

FrameOpener::FrameOpener(const Session& session, Party self, Party peer, FrameCounts& counts)
    : session_(session), self_(self), peer_(peer), mac_(session.key), counts_(counts) {}

Result<OpenedFrame> FrameOpener::open(std::span<const std::byte> frame) {
  const auto refuse = [this](FrameProblem problem, const std::string& what) {
    counts_.add(problem);
    return Error{"refused a frame from rank " + std::to_string(peer_.rank.value()) + ": " + what};
  };
  if (frame.size() < frame_header_bytes + frame_mac_bytes || frame.size() > max_frame_bytes || frame.size() % sizeof(capnp::word) != 0) {
    return refuse(FrameProblem::length, std::to_string(frame.size()) + " bytes");
  }
  Scanner start(frame.data());
  const auto magic = start.take<std::uint32_t>();
  const auto version = start.take<std::uint16_t>();
  if (magic != frame_magic || version != frame_version) return refuse(FrameProblem::magic, "not a frame of version " + std::to_string(frame_version));

  std::array<std::byte, frame_mac_bytes> mac{};
  mac_.compute(frame.first(frame.size() - frame_mac_bytes), mac);
  if (CRYPTO_memcmp(mac.data(), frame.last<frame_mac_bytes>().data(), mac.size()) != 0) return refuse(FrameProblem::mac, "its MAC is wrong");

  OpenedFrame opened{read_header(frame.data()), {}};
  const FrameHeader& header = opened.header;
  if (header.type < FrameType::letter || header.type > FrameType::doorbell)
    return refuse(FrameProblem::type, "type " + std::to_string(static_cast<int>(header.type)));
  if (header.job != session_.job) return refuse(FrameProblem::job, "it belongs to job " + std::to_string(header.job));
  if (header.sender.rank != peer_.rank) return refuse(FrameProblem::sender, "it was sent by " + text(header.sender));
  if (header.sender.incarnation != peer_.incarnation)
    return refuse(FrameProblem::incarnation, "it was sent by " + text(header.sender) + ", now is " + text(peer_));
  if (header.receiver != self_) return refuse(FrameProblem::receiver, "it is for " + text(header.receiver) + ", this is " + text(self_));
  if (header.sequence <= last_sequence_) {
    return refuse(FrameProblem::sequence, "number " + std::to_string(header.sequence) + " after " + std::to_string(last_sequence_) + ": replayed or reordered");
  }
  const std::size_t body_bytes = frame.size() - frame_header_bytes - frame_mac_bytes;
  if (header.words != body_bytes / sizeof(capnp::word)) return refuse(FrameProblem::length, "it announces " + std::to_string(header.words) + " words");
  last_sequence_ = header.sequence;
  if (!has_letter(header.type)) {
    if (header.words != 0 || (header.payload_bytes != 0) != (header.type == FrameType::payload_hash)) {
      return refuse(FrameProblem::type, "type " + std::to_string(static_cast<int>(header.type)) + " with content that is not its own");
    }
    return opened;
  }
  if (header.type == FrameType::letter_ahead && (header.payload_bytes == 0 || header.payload_hash != 0)) {
    return refuse(FrameProblem::payload, "a letter ahead of no payload");
  }
  opened.words = kj::heapArray<capnp::word>(body_bytes / sizeof(capnp::word));  // aligned; UCX's headers are not
  std::memcpy(opened.words.begin(), frame.data() + frame_header_bytes, body_bytes);
  if (const auto problem = check_letter(opened.words)) return refuse(problem->problem, problem->what);
  if (capnp::FlatArrayMessageReader reader(opened.words); reader.getRoot<schema::Envelope>().getWhere().getEpoch() != header.epoch.value()) {
    return refuse(FrameProblem::epoch, "header and letter name different epochs");
  }
  return opened;
}

}  // namespace troupe
