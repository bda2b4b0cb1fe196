#include "src/runtime/directory.hpp"

#include <atomic>
#include <caf/actor.hpp>
#include <caf/send.hpp>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <unordered_map>

#include "src/runtime/letter_message.hpp"

namespace troupe {
namespace {

std::uint64_t key_of(const ActorAddress& address) { return (std::uint64_t{address.rank.value()} << 16U) | static_cast<std::uint64_t>(address.actor); }

}  // namespace

struct Directory::Book {
  mutable std::shared_mutex mutex;
  std::unordered_map<std::uint64_t, caf::actor> actors;
  std::set<Rank> local_ranks;
  RemoteSender* remote = nullptr;
  std::atomic<std::uint64_t> undeliverable{0};
};

Directory::Directory() : book_(std::make_unique<Book>()) {}
Directory::~Directory() = default;

void Directory::add(const ActorAddress& address, const caf::actor& actor) {
  const std::unique_lock lock(book_->mutex);
  book_->actors[key_of(address)] = actor;
  book_->local_ranks.insert(address.rank);
}

void Directory::remove(const ActorAddress& address) {
  caf::actor last;  // an actor may end with its last handle: not under the lock
  const std::unique_lock lock(book_->mutex);
  const auto found = book_->actors.find(key_of(address));
  if (found == book_->actors.end()) return;
  last = std::move(found->second);
  book_->actors.erase(found);
}

caf::actor Directory::find(const ActorAddress& address) const {
  const std::shared_lock lock(book_->mutex);
  const auto found = book_->actors.find(key_of(address));
  return found == book_->actors.end() ? caf::actor{} : found->second;
}

void Directory::set_remote(RemoteSender* remote) {
  const std::unique_lock lock(book_->mutex);
  book_->remote = remote;
}

void Directory::clear() {
  std::unordered_map<std::uint64_t, caf::actor> last;
  const std::unique_lock lock(book_->mutex);
  last.swap(book_->actors);
  book_->remote = nullptr;
}

void Directory::post(std::shared_ptr<const Parcel> parcel) {
  const auto to = parcel->envelope().getTo();
  const ActorAddress address{Rank{to.getRank()}, static_cast<ActorKind>(to.getActor())};
  caf::actor actor;
  RemoteSender* remote = nullptr;
  {
    const std::shared_lock lock(book_->mutex);
    if (const auto found = book_->actors.find(key_of(address)); found != book_->actors.end()) {
      actor = found->second;
    } else if (!book_->local_ranks.contains(address.rank)) {
      remote = book_->remote;
    }
  }
  if (remote) return remote->send(std::move(parcel));  // not under the lock: it may post here itself
  const bool delivered = actor && dispatch(std::move(parcel), [&](auto letter) { caf::anon_send(actor, std::move(letter)); });
  if (!delivered) book_->undeliverable.fetch_add(1, std::memory_order_relaxed);
}

std::uint64_t Directory::undeliverable() const noexcept { return book_->undeliverable.load(std::memory_order_relaxed); }

}  // namespace troupe
