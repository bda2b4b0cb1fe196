#include "src/collectives/transport_communicator.hpp"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <utility>

#include "messages/write.hpp"
#include "src/base/fnv.hpp"
#include "src/collectives/chunk_exchange.hpp"
#include "src/collectives/chunked_communicator.hpp"
#include "src/collectives/collective_inbox.hpp"

namespace troupe {
namespace {

std::string describe(const CommunicatorTerms& terms) {
  return std::to_string(terms.size) + " members with " + std::to_string(terms.chunks) + " chunks of " + std::to_string(terms.chunk_bytes) + " bytes";
}

/// Own chunks on their way out. Shared with the transport's completions, which may come after the communicator is gone.
struct Outbox {
  explicit Outbox(const CommunicatorTerms& terms) : chunks(terms.chunks, std::vector<std::byte>(terms.chunk_bytes)), pending(terms.chunks) {}
  std::vector<std::vector<std::byte>> chunks;
  std::vector<std::uint32_t> pending;  ///< sends not completed; under the inbox's lock
};

/// Chunks travel as payloads of letters, each member's to each other's process directly.
class TransportExchange final : public ChunkExchange {
 public:
  TransportExchange(const TransportCommunicatorOptions& options, const CommunicatorTerms& terms, const Clock& clock, CollectiveMail& mail)
      : options_(options),
        terms_(terms),
        key_(fnv1a(options.tag)),
        clock_(clock),
        mail_(mail),
        inbox_(std::make_shared<CollectiveInbox>(options.rank, options.processes, terms, [transport = &mail.transport()] { transport->slot_available(); })),
        outbox_(std::make_shared<Outbox>(terms)) {
    mail_.add(key_, inbox_);
  }
  ~TransportExchange() override {
    inbox_->kill("this member has left");
    mail_.remove(key_);
    inbox_->forget_chunks(~std::uint64_t{0});
  }
  TransportExchange(const TransportExchange&) = delete;
  TransportExchange& operator=(const TransportExchange&) = delete;

  [[nodiscard]] std::uint32_t rank() const noexcept override { return options_.rank; }
  [[nodiscard]] std::uint32_t size() const noexcept override { return terms_.size; }
  [[nodiscard]] std::uint64_t chunk_bytes() const noexcept override { return terms_.chunk_bytes; }
  [[nodiscard]] std::uint32_t chunks() const noexcept override { return terms_.chunks; }

  void begin(const CallSignature& signature) override {
    if (const auto cause = inbox_->cause()) throw CollectiveError(text(*cause));
    current_ = signature;
    for_each_peer([&](std::uint32_t peer) {
      post(peer, [&](auto content) {
        auto call = content.initCall();
        call.setKind(static_cast<std::uint32_t>(signature.kind));
        call.setDtype(signature.dtype);
        call.setDetail(signature.detail);
        call.setPieces(signature.pieces);
        call.setBytes(signature.bytes);
        call.setLayout(signature.layout);
        call.setNumber(signature.call);
      });
    });
  }

  [[nodiscard]] std::vector<CallSignature> calls() override {
    std::vector<CallSignature> all(terms_.size, current_);
    for_each_peer([&](std::uint32_t peer) {
      await(peer, "join in", [&] {
        const CallSignature* const call = inbox_->call_of(peer, current_.call);
        if (call) all[peer] = *call;
        return call != nullptr;
      });
    });
    inbox_->forget_call(current_.call);
    return all;
  }

  [[nodiscard]] std::span<std::byte> outgoing(std::uint64_t round) override {
    const std::size_t index = round % terms_.chunks;
    await(std::nullopt, "take its chunks", [&] { return outbox_->pending[index] == 0; });
    return outbox_->chunks[index];
  }

  void send(std::uint64_t round, ChunkKind kind, std::uint64_t bytes) override {
    if (bytes == 0) return;
    const std::size_t index = round % terms_.chunks;
    {
      const auto lock = inbox_->lock();
      outbox_->pending[index] = terms_.size - 1;
    }
    for_each_peer([&](std::uint32_t peer) {
      const std::uint64_t offset = kind == ChunkKind::same ? 0 : part_offset(rank(), peer);
      Lease lease(SlotIndex{static_cast<std::uint32_t>(index)}, std::span(outbox_->chunks[index]).subspan(offset, bytes), [keep = outbox_] {});
      post(
          peer, [&](auto content) { content.setChunk(round); }, std::move(lease),
          [inbox = inbox_, outbox = outbox_, index, peer](const Result<void>& result) {
            if (!result.ok()) inbox->kill("a chunk did not reach rank " + std::to_string(peer) + ": " + result.error().message);
            const auto lock = inbox->lock();
            --outbox->pending[index];
            inbox->wake();
          });
    });
  }

  [[nodiscard]] std::span<const std::byte> incoming(std::uint32_t peer, std::uint64_t round, ChunkKind) override {
    std::span<const std::byte> bytes;
    await(peer, "send its chunks", [&] {
      const Lease* const chunk = inbox_->chunk_of(peer, round);
      if (chunk) bytes = chunk->bytes();
      return chunk != nullptr;
    });
    return bytes;
  }
  void release(std::uint64_t round) override { inbox_->forget_chunks(round); }

  void abort(const std::string& cause) noexcept override {
    if (!inbox_->kill(cause)) return;
    for_each_peer([&](std::uint32_t peer) { post(peer, [&](auto content) { content.setAbort(cause.substr(0, 2000)); }, {}, [](const Result<void>&) {}); });
  }
  [[noreturn]] void fail(const std::string& cause) override {
    abort(cause);
    throw CollectiveError(text(inbox_->cause().value_or(cause)));
  }

  /// The last step of making one: returns when all members are there and want the same.
  void meet() {
    for_each_peer([&](std::uint32_t peer) {
      post(peer, [&](auto content) {
        auto terms = content.initJoined();
        terms.setSize(terms_.size);
        terms.setChunks(terms_.chunks);
        terms.setChunkBytes(terms_.chunk_bytes);
      });
    });
    for_each_peer([&](std::uint32_t peer) {
      CommunicatorTerms theirs;
      await(peer, "join the communicator", [&] {
        if (inbox_->joined(peer)) theirs = inbox_->terms_of(peer);
        return inbox_->joined(peer);
      });
      if (theirs != terms_)
        fail("rank " + std::to_string(peer) + " wants " + describe(theirs) + ", rank " + std::to_string(rank()) + " wants " + describe(terms_) +
             "; give all members the same options");
    });
  }

 private:
  template <class Visit>
  void for_each_peer(Visit visit) const {
    for (std::uint32_t step = 1; step < terms_.size; ++step) visit((options_.rank + step) % terms_.size);
  }

  template <class Fill>
  void post(std::uint32_t peer, Fill fill, Lease lease = {}, Completion completion = {}) const {
    const Heading heading{.to = {options_.processes[peer], ActorKind::none},
                          .from = {options_.processes[options_.rank], ActorKind::none},
                          .where = {options_.epoch, {}, {}, {}},
                          .operation = {},
                          .sent = clock_.now()};
    auto parcel = write<schema::CollectivePart>(
        heading,
        [&](auto body) {
          body.setCommunicator(key_);
          body.setMember(options_.rank);
          fill(body.getContent());
        },
        std::move(lease));
    if (!completion) {
      completion = [inbox = inbox_, peer](const Result<void>& result) {
        if (!result.ok()) inbox->kill("rank " + std::to_string(peer) + " cannot be reached: " + result.error().message);
      };
    }
    mail_.transport().send(options_.processes[peer], std::move(parcel), std::move(completion));
  }

  void await(std::optional<std::uint32_t> peer, const char* what, const std::function<bool()>& condition) {
    switch (inbox_->wait(condition, clock_, options_.timeout)) {
      case CollectiveInbox::Wait::here: return;
      case CollectiveInbox::Wait::dead: throw CollectiveError(text(inbox_->cause().value_or("")));
      case CollectiveInbox::Wait::late:
        fail((peer ? "rank " + std::to_string(*peer) : std::string("a member")) + " did not " + what + " within " +
             std::to_string(std::chrono::duration<double>(options_.timeout).count()) + " s of rank " + std::to_string(options_.rank) +
             (current_.call == 0 ? "" : " in call " + std::to_string(current_.call) + ", " + troupe::describe(current_)));
    }
  }

  [[nodiscard]] std::string text(const std::string& cause) const {
    return "communicator " + options_.tag + ", rank " + std::to_string(options_.rank) + ": " + cause;
  }

  const TransportCommunicatorOptions options_;
  const CommunicatorTerms terms_;
  const std::uint64_t key_;
  const Clock& clock_;
  CollectiveMail& mail_;
  const std::shared_ptr<CollectiveInbox> inbox_;
  const std::shared_ptr<Outbox> outbox_;
  CallSignature current_;
};

}  // namespace

std::unique_ptr<Communicator> make_transport_communicator(const TransportCommunicatorOptions& options, const Clock& clock, CollectiveMail& mail) {
  const std::string who = "communicator " + options.tag + ": ";
  const auto size = static_cast<std::uint32_t>(options.processes.size());
  if (options.rank >= size) throw std::invalid_argument(who + "rank " + std::to_string(options.rank) + " is not one of " + std::to_string(size) + " members");
  if (std::set(options.processes.begin(), options.processes.end()).size() != size)
    throw std::invalid_argument(who + "two members are in one process; join those over shared memory");
  if (options.chunks == 0 || options.chunk_bytes == 0 || options.tag.empty())
    throw std::invalid_argument(who + "it needs a tag, chunks and chunk_bytes over zero");
  auto exchange =
      std::make_unique<TransportExchange>(options, CommunicatorTerms{size, options.chunks, usable_chunk_bytes(options.chunk_bytes, size)}, clock, mail);
  const std::stop_callback on_stop(options.stop, [&] { exchange->abort("stopped while waiting for its members"); });
  exchange->meet();
  return std::make_unique<ChunkedCommunicator>(std::move(exchange));
}

}  // namespace troupe
