#include "src/collectives/rendezvous.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "src/base/fnv.hpp"

namespace troupe {
namespace {

/// Owns a descriptor.
class Descriptor {
 public:
  explicit Descriptor(int value = -1) noexcept : value_(value) {}
  Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~Descriptor() {
    if (value_ >= 0) close(value_);
  }
  [[nodiscard]] int get() const noexcept { return value_; }

 private:
  int value_;
};

struct Hello {
  std::uint64_t magic = 0x54524f5550453031;  // "TROUPE01"
  std::uint32_t rank = 0;
  RegionShape shape;
};
struct Welcome {
  std::uint32_t accepted = 0;
  char refusal[508] = {};
};

std::string describe(const RegionShape& shape) {
  return std::to_string(shape.members) + " members with " + std::to_string(shape.slots) + " chunks of " + std::to_string(shape.chunk_bytes) + " bytes";
}

std::string mismatch(const std::string& tag, std::uint32_t there, const RegionShape& found, std::uint32_t here, const RegionShape& expected) {
  return "communicator " + tag + ": rank " + std::to_string(there) + " wants " + describe(found) + ", rank " + std::to_string(here) + " wants " +
         describe(expected) + "; give all members the same options";
}

/// "\0troupe.<user>.<tag>"; a tag too long for a socket's name keeps its start and gets its hash.
socklen_t fill_address(sockaddr_un& address, const std::string& tag) {
  std::string name = "troupe." + std::to_string(getuid()) + "." + tag;
  constexpr std::size_t longest = sizeof(address.sun_path) - 1;
  if (name.size() > longest) {
    const std::string tail = "." + std::to_string(fnv1a(tag));
    name = name.substr(0, longest - tail.size()) + tail;
  }
  address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

bool same_user(int socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0 && credentials.uid == getuid();
}

/// The limits of one wait for others.
class Patience {
 public:
  Patience(const std::string& tag, std::uint32_t rank, const Clock& clock, Nanos deadline, const std::stop_token& stop)
      : tag_(tag), rank_(rank), clock_(clock), deadline_(deadline), stop_(stop) {}
  /// Sleeps until a descriptor is ready or a moment has passed. Throws when patience ends; `missing` says for whom it waited.
  template <class Missing>
  void wait(std::span<pollfd> descriptors, int milliseconds, Missing missing) const {
    if (stop_.stop_requested()) throw CollectiveError(text() + "stopped while waiting for " + missing());
    if (clock_.now() >= deadline_) throw CollectiveError(text() + missing() + " did not come in time; see whether it runs and was given the same tag");
    poll(descriptors.data(), descriptors.size(), milliseconds);
  }

 private:
  [[nodiscard]] std::string text() const { return "communicator " + tag_ + ", rank " + std::to_string(rank_) + ": "; }
  const std::string& tag_;
  std::uint32_t rank_;
  const Clock& clock_;
  Nanos deadline_;
  const std::stop_token& stop_;
};

void send_refusal(int socket, const std::string& why) {
  Welcome welcome;
  std::memcpy(welcome.refusal, why.data(), std::min(why.size(), sizeof(welcome.refusal) - 1));
  (void)send(socket, &welcome, sizeof welcome, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool send_descriptor(int socket, int descriptor) {
  Welcome welcome{.accepted = 1};
  iovec data{&welcome, sizeof welcome};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(sizeof welcome);
}

/// False: the peer left. A refusal is thrown.
bool receive_descriptor(int socket, Descriptor& memory) {
  Welcome welcome;
  iovec data{&welcome, sizeof welcome};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) != static_cast<ssize_t>(sizeof welcome)) return false;
  if (welcome.accepted == 0) throw CollectiveError(welcome.refusal);
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (!header || header->cmsg_type != SCM_RIGHTS) return false;
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
  memory = Descriptor(descriptor);
  return true;
}

Descriptor create_memory(const RegionShape& shape) {
  Descriptor memory(memfd_create("troupe-communicator", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (memory.get() < 0 || ftruncate(memory.get(), static_cast<off_t>(shape.bytes())) != 0)
    throw std::system_error(errno, std::generic_category(), "cannot make " + std::to_string(shape.bytes()) + " bytes of shared memory for a communicator");
  // Nobody who gets the descriptor can shrink the file under the others' feet.
  fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  return memory;
}

std::string ranks_missing(const std::vector<bool>& present) {
  std::string text;
  for (std::size_t rank = 0; rank < present.size(); ++rank) {
    if (!present[rank]) text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank);
  }
  return text;
}

std::uint32_t first_present(const std::vector<bool>& present) {
  return static_cast<std::uint32_t>(std::find(present.begin(), present.end(), true) - present.begin());
}

/// Member 0's side: answers connections until every other member has the memory.
class Host {
 public:
  Host(const std::string& tag, const RegionShape& shape)
      : tag_(tag),
        shape_(shape),
        memory_(create_memory(shape)),
        listener_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
        present_(shape.members) {
    sockaddr_un address;
    const socklen_t length = fill_address(address, tag);
    if (listener_.get() < 0 || bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(listener_.get(), 128) != 0) {
      const std::string why = errno == EADDRINUSE ? "another rank 0 with this tag is waiting for its members on this host; use a tag for one communicator only"
                                                  : std::string("cannot listen on a local socket: ") + std::strerror(errno);
      throw CollectiveError("communicator " + tag + ", rank 0: " + why);
    }
    present_[0] = true;
  }

  std::shared_ptr<SharedRegion> run(const Patience& patience) {
    while (std::find(present_.begin(), present_.end(), false) != present_.end()) {
      std::vector<pollfd> waiting{{listener_.get(), POLLIN, 0}};
      for (const auto& guest : guests_) waiting.push_back({guest.get(), POLLIN, 0});
      patience.wait(waiting, 20, [this] { return ranks_missing(present_); });
      accept_guests();
      for (auto guest = guests_.begin(); guest != guests_.end();) guest = answer(*guest) ? guests_.erase(guest) : guest + 1;
    }
    return SharedRegion::of_file(memory_.get(), shape_);
  }

 private:
  void accept_guests() {
    while (true) {
      Descriptor guest(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (guest.get() < 0) return;
      if (same_user(guest.get())) guests_.push_back(std::move(guest));
    }
  }

  /// True when this guest needs no more attention.
  bool answer(const Descriptor& guest) {
    Hello hello;
    const ssize_t got = recv(guest.get(), &hello, sizeof hello, MSG_DONTWAIT);
    if (got < 0) return errno != EAGAIN && errno != EINTR;
    if (got != static_cast<ssize_t>(sizeof hello) || hello.magic != Hello{}.magic) return true;
    std::string refusal;
    if (hello.shape != shape_)
      refusal = mismatch(tag_, hello.rank, hello.shape, 0, shape_);
    else if (hello.rank >= shape_.members || present_[hello.rank])
      refusal = "communicator " + tag_ + ": there are two members with rank " + std::to_string(hello.rank);
    if (!refusal.empty()) {
      send_refusal(guest.get(), refusal);
      throw CollectiveError(refusal);
    }
    present_[hello.rank] = send_descriptor(guest.get(), memory_.get());
    return true;
  }

  const std::string& tag_;
  RegionShape shape_;
  Descriptor memory_, listener_;
  std::vector<Descriptor> guests_;
  std::vector<bool> present_;
};

std::shared_ptr<SharedRegion> join_host(const std::string& tag, std::uint32_t rank, const RegionShape& shape, const Patience& patience) {
  sockaddr_un address;
  const socklen_t length = fill_address(address, tag);
  const auto missing = [] { return std::string("rank 0"); };
  while (true) {
    const Descriptor host(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const Hello hello{.rank = rank, .shape = shape};
    const bool connected = host.get() >= 0 && connect(host.get(), reinterpret_cast<sockaddr*>(&address), length) == 0 && same_user(host.get()) &&
                           send(host.get(), &hello, sizeof hello, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof hello);
    if (!connected) {
      patience.wait({}, 5, missing);
      continue;
    }
    pollfd answer{host.get(), POLLIN, 0};
    while (answer.revents == 0) patience.wait({&answer, 1}, 20, missing);
    Descriptor memory;
    if (receive_descriptor(host.get(), memory)) return SharedRegion::of_file(memory.get(), shape);
    patience.wait({}, 5, missing);
  }
}

}  // namespace

std::shared_ptr<SharedRegion> SharedMemoryRegistry::join(const std::string& tag, std::uint32_t rank, const RegionShape& shape) {
  const std::lock_guard lock(mutex_);
  Waiting& waiting = waiting_[tag];
  if (!waiting.region) {
    waiting.region = SharedRegion::anonymous(shape);
    waiting.present.assign(shape.members, false);
  }
  std::string refusal;
  if (waiting.region->shape() != shape)
    refusal = mismatch(tag, rank, shape, first_present(waiting.present), waiting.region->shape());
  else if (rank >= shape.members || waiting.present[rank])
    refusal = "communicator " + tag + ": there are two members with rank " + std::to_string(rank);
  const auto region = waiting.region;
  if (!refusal.empty()) {
    region->abort(refusal);
    waiting_.erase(tag);
    throw CollectiveError(refusal);
  }
  waiting.present[rank] = true;
  if (++waiting.count == shape.members) waiting_.erase(tag);
  return region;
}

void SharedMemoryRegistry::leave(const std::string& tag, const std::shared_ptr<SharedRegion>& region) {
  const std::lock_guard lock(mutex_);
  const auto found = waiting_.find(tag);
  if (found != waiting_.end() && found->second.region == region) waiting_.erase(found);
}

std::shared_ptr<SharedRegion> join_processes(const std::string& tag, std::uint32_t rank, const RegionShape& shape, const Clock& clock, Nanos deadline,
                                             const std::stop_token& stop) {
  const Patience patience(tag, rank, clock, deadline, stop);
  if (shape.members == 1) return SharedRegion::anonymous(shape);
  if (rank == 0) return Host(tag, shape).run(patience);
  return join_host(tag, rank, shape, patience);
}

}  // namespace troupe
