#include "src/collectives/collective_inbox.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

constexpr Nanos longest_sleep{50'000'000};  ///< so that a clock that is not the machine's is asked often enough

}  // namespace

Lease nowhere(std::uint64_t bytes) {
  auto buffer = std::make_shared<std::vector<std::byte>>(bytes);
  const std::span<std::byte> memory(*buffer);
  return Lease(SlotIndex{}, memory, [buffer = std::move(buffer)] {});
}

CollectiveInbox::CollectiveInbox(std::uint32_t rank, std::vector<Rank> processes, const CommunicatorTerms& terms, std::function<void()> freed)
    : rank_(rank), processes_(std::move(processes)), terms_(terms), freed_(std::move(freed)), peers_(processes_.size()) {
  for (std::uint32_t peer = 0; peer < peers_.size(); ++peer) {
    if (peer == rank_) continue;
    peers_[peer].buffers.resize(terms.chunks + 1);
    for (std::uint32_t buffer = 0; buffer <= terms.chunks; ++buffer) peers_[peer].free.push_back(buffer);
  }
}

bool CollectiveInbox::sent_by_member(schema::Envelope::Reader envelope) const {
  const std::uint32_t member = envelope.getBody().getCollectivePart().getMember();
  return member < peers_.size() && member != rank_ && processes_[member] == Rank{envelope.getFrom().getRank()};
}

void CollectiveInbox::put(const std::shared_ptr<const Parcel>& parcel) {
  const auto envelope = parcel->envelope();
  if (!sent_by_member(envelope)) return;
  const auto part = envelope.getBody().getCollectivePart();
  const auto content = part.getContent();
  if (content.isAbort()) {
    kill(content.getAbort().cStr());
    return;
  }
  const std::lock_guard guard(mutex_);
  if (cause_) return;
  Peer& peer = peers_[part.getMember()];
  if (content.isJoined()) {
    const auto terms = content.getJoined();
    peer.terms = CommunicatorTerms{terms.getSize(), terms.getChunks(), terms.getChunkBytes()};
  } else if (content.isCall()) {
    const auto call = content.getCall();
    const CallSignature signature{
        static_cast<CollectiveKind>(call.getKind()), call.getDtype(), call.getDetail(), call.getPieces(), call.getBytes(), call.getLayout(), call.getNumber()};
    if (peer.calls.size() < 4) peer.calls[signature.call] = signature;  // a sound member is at most one call ahead
  } else if (content.isChunk() && parcel->lease()) {
    peer.chunks[content.getChunk()] = parcel->lease();
  }
  wake();
}

Lease CollectiveInbox::slot_for(schema::Envelope::Reader envelope, std::uint64_t bytes) {
  if (!sent_by_member(envelope)) return nowhere(bytes);
  const std::uint32_t member = envelope.getBody().getCollectivePart().getMember();
  if (bytes > terms_.chunk_bytes) {
    kill("rank " + std::to_string(member) + " sent a chunk of " + std::to_string(bytes) + " bytes, agreed were " + std::to_string(terms_.chunk_bytes));
    return nowhere(bytes);
  }
  const std::lock_guard guard(mutex_);
  if (cause_) return nowhere(bytes);
  Peer& peer = peers_[member];
  if (peer.free.empty()) return {};
  const std::uint32_t index = peer.free.back();
  peer.free.pop_back();
  auto& buffer = peer.buffers[index];
  buffer.resize(terms_.chunk_bytes);  // the first time only
  return Lease(SlotIndex{index}, buffer, [self = shared_from_this(), member, index] { self->take_back(member, index); });
}

void CollectiveInbox::take_back(std::uint32_t peer, std::uint32_t buffer) {
  {
    const std::lock_guard guard(mutex_);
    peers_[peer].free.push_back(buffer);
  }
  freed_();
}

void CollectiveInbox::peer_lost(Rank process, const std::string& cause) {
  const auto member = std::find(processes_.begin(), processes_.end(), process);
  if (member != processes_.end()) kill("rank " + std::to_string(member - processes_.begin()) + " was lost: " + cause);
}

bool CollectiveInbox::kill(const std::string& cause) {
  {
    const std::lock_guard guard(mutex_);
    if (cause_) return false;
    cause_ = cause;
  }
  changed_.notify_all();
  freed_();  // chunks that wait for a buffer find that nobody wants them
  return true;
}

std::optional<std::string> CollectiveInbox::cause() const {
  const std::lock_guard guard(mutex_);
  return cause_;
}

CollectiveInbox::Wait CollectiveInbox::wait(const std::function<bool()>& condition, const Clock& clock, Nanos limit) {
  const Nanos deadline = clock.now() + limit;
  std::unique_lock guard(mutex_);
  while (true) {
    if (cause_) return Wait::dead;
    if (condition()) return Wait::here;
    const Nanos left = deadline - clock.now();
    if (left <= Nanos{0}) return Wait::late;
    awaited_ = &condition;
    changed_.wait_for(guard, std::min(left, longest_sleep));
    awaited_ = nullptr;
  }
}

/// Most of what changes is not what the member waits for just now: it sleeps on, as waking costs more than a look.
void CollectiveInbox::wake() {
  if (awaited_ != nullptr && (*awaited_)()) changed_.notify_all();
}

const CallSignature* CollectiveInbox::call_of(std::uint32_t peer, std::uint64_t number) const {
  const auto found = peers_[peer].calls.find(number);
  return found == peers_[peer].calls.end() ? nullptr : &found->second;
}

const Lease* CollectiveInbox::chunk_of(std::uint32_t peer, std::uint64_t round) const {
  const auto found = peers_[peer].chunks.find(round);
  return found == peers_[peer].chunks.end() ? nullptr : &found->second;
}

void CollectiveInbox::forget_call(std::uint64_t number) {
  const std::lock_guard guard(mutex_);
  for (auto& peer : peers_) peer.calls.erase(peer.calls.begin(), peer.calls.upper_bound(number));
}

void CollectiveInbox::forget_chunks(std::uint64_t round) {
  std::vector<Lease> gone;  // their release takes the lock
  {
    const std::lock_guard guard(mutex_);
    for (auto& peer : peers_) {
      const auto end = peer.chunks.upper_bound(round);
      for (auto chunk = peer.chunks.begin(); chunk != end; ++chunk) gone.push_back(std::move(chunk->second));
      peer.chunks.erase(peer.chunks.begin(), end);
    }
  }
}

}  // namespace troupe
