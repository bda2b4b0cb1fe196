#include "tools/worker/loader_batches.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "messages/edge_kind.hpp"
#include "messages/kinds.hpp"
#include "src/runtime/send.hpp"

namespace troupe {
namespace {

bool is_batch(schema::Envelope::Reader envelope) { return envelope.getBody().which() == LetterKind::BATCH_READY; }

}  // namespace

class LoaderBatches::Program final : public LoaderProgram {
 public:
  Program(LoaderBatches& batches, Runtime& runtime, EpochId epoch, Rank rank, Rank loader)
      : batches_(batches), runtime_(runtime), epoch_(epoch), rank_(rank), loader_(loader) {}
  BatchFacts load(Stream&, Step step, Micro micro, std::span<std::byte> batch) override {
    return batches_.receive(runtime_, epoch_, {rank_, step, micro}, loader_, batch);
  }

 private:
  LoaderBatches& batches_;
  Runtime& runtime_;
  EpochId epoch_;
  Rank rank_, loader_;
};

TransportHandlers LoaderBatches::around(TransportHandlers others) {
  TransportHandlers handlers = others;
  handlers.letter = [this, next = std::move(others.letter)](std::shared_ptr<const Parcel> parcel) {
    if (!is_batch(parcel->envelope())) return next(std::move(parcel));
    received(*parcel);
  };
  handlers.slot_for = [this, next = std::move(others.slot_for)](schema::Envelope::Reader envelope, std::uint64_t bytes) {
    return is_batch(envelope) ? slot_for(envelope) : next(envelope, bytes);
  };
  handlers.peer_lost = [this, next = std::move(others.peer_lost)](Rank peer, const std::string& cause) {
    lost(peer, cause);
    next(peer, cause);
  };
  handlers.peer_left = [this, next = std::move(others.peer_left)](Rank peer) {
    lost(peer, "it has closed its link");
    if (next) next(peer);
  };
  return handlers;
}

std::shared_ptr<LoaderProgram> LoaderBatches::program(Runtime& runtime, EpochId epoch, Rank rank, Rank loader) {
  const std::lock_guard lock(mutex_);
  aborted_.erase(rank);
  return std::make_shared<Program>(*this, runtime, epoch, rank, loader);
}

BatchFacts LoaderBatches::receive(Runtime& runtime, EpochId epoch, const Key& key, Rank loader, std::span<std::byte> slot) {
  const auto [rank, step, micro] = key;
  {
    const std::lock_guard lock(mutex_);
    waiting_[key] = Waiting{.slot = slot, .loader = loader, .receiving = false, .facts = {}, .problem = {}};
  }
  const Heading heading{{loader, ActorKind::data_loader}, {rank, ActorKind::data_loader}, Where{epoch, step, micro, {}}, {}, Nanos{0}, 0};
  send<schema::SlotHome>(runtime, heading, [](auto body) { body.setEdge(static_cast<std::uint16_t>(EdgeKind::batches)); });
  std::unique_lock lock(mutex_);
  Waiting& waiting = waiting_.at(key);
  const auto over = [&] { return waiting.facts || !waiting.problem.empty() || aborted_.contains(rank) || lost_.contains(loader); };
  changed_.wait(lock, [&] { return over() && !waiting.receiving; });  // the slot is not left while the transport writes into it
  const std::optional<BatchFacts> facts = waiting.facts;
  std::string problem = waiting.problem;
  waiting_.erase(key);
  if (facts) return *facts;
  if (const auto gone = lost_.find(loader); gone != lost_.end()) problem = gone->second;
  if (const auto cause = aborted_.find(rank); cause != aborted_.end()) problem = cause->second;
  throw std::runtime_error(fmt::format("the batch of step {}, micro-batch {} did not come from the loader process (rank {}): {}", step.value(), micro.value(),
                                       loader.value(), problem));
}

Lease LoaderBatches::slot_for(schema::Envelope::Reader envelope) {
  const Where where = where_of(envelope);
  const Key key{address_of(envelope.getTo()).rank, where.step, where.micro};
  const std::lock_guard lock(mutex_);
  const auto found = waiting_.find(key);
  if (found == waiting_.end() || found->second.receiving || found->second.facts || address_of(envelope.getFrom()).rank != found->second.loader) return {};
  found->second.receiving = true;
  return Lease{SlotIndex{envelope.getWhere().getSlot()}, found->second.slot, [this, key] { given_back(key); }};
}

void LoaderBatches::received(const Parcel& parcel) {
  const auto envelope = parcel.envelope();
  const Where where = where_of(envelope);
  const std::lock_guard lock(mutex_);
  const auto found = waiting_.find({address_of(envelope.getTo()).rank, where.step, where.micro});
  if (found == waiting_.end() || !found->second.receiving) return;
  const auto body = envelope.getBody().getBatchReady();
  found->second.facts = BatchFacts{body.getTokens(), body.getDigest()};
}

void LoaderBatches::given_back(const Key& key) {
  const std::lock_guard lock(mutex_);
  const auto found = waiting_.find(key);
  if (found == waiting_.end()) return;
  found->second.receiving = false;
  if (!found->second.facts) found->second.problem = "its payload was refused, or broke off";
  changed_.notify_all();
}

void LoaderBatches::abort(Rank rank, const std::string& cause) {
  const std::lock_guard lock(mutex_);
  aborted_.emplace(rank, cause);
  changed_.notify_all();
}

void LoaderBatches::lost(Rank peer, const std::string& cause) {
  const std::lock_guard lock(mutex_);
  lost_.emplace(peer, cause);
  changed_.notify_all();
}

}  // namespace troupe
