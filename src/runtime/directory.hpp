#pragma once
#include <cstdint>
#include <memory>

#include "src/runtime/runtime.hpp"

namespace caf {
class actor;
}

namespace troupe {

/// Takes letters for actors of other processes; the transport implements it. Any thread; never blocks.
class RemoteSender {
 public:
  virtual ~RemoteSender() = default;
  virtual void send(std::shared_ptr<const Parcel> parcel) = 0;
};

/// The PostOffice of a process: an address → a local actor's mailbox, or the remote sender. A rank is local from its first `add` on:
/// a letter to one of its actors that is not (or no longer) there is dropped and counted, never sent away. All functions: any thread.
/// It holds strong handles: `clear()` it, or `remove` everything, before the actor system goes.
class Directory final : public PostOffice {
 public:
  Directory();
  ~Directory() override;
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  /// Replaces whoever had this address.
  void add(const ActorAddress& address, const caf::actor& actor);
  void remove(const ActorAddress& address);
  /// The handle at an address; invalid if there is none.
  [[nodiscard]] caf::actor find(const ActorAddress& address) const;
  /// Where letters for ranks of other processes go; null: they are dropped and counted. A send that has begun
  /// may still run when this returns: the sender must outlive whoever posts.
  void set_remote(RemoteSender* remote);
  /// Forgets all actors and the remote sender; later letters are dropped.
  void clear();

  void post(std::shared_ptr<const Parcel> parcel) override;
  /// Letters that had nobody to go to, or a kind that this version does not know.
  [[nodiscard]] std::uint64_t undeliverable() const noexcept;

 private:
  struct Book;
  std::unique_ptr<Book> book_;
};

}  // namespace troupe
