#include "tools/launcher/control_server.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "tools/launcher/socket.hpp"

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds write_limit{2000};

struct Connection {
  Descriptor socket;
  Clock::time_point since = Clock::now();
  FrameCutter frames{control_limit_stranger};
  std::optional<Rank> claimed;  ///< the rank of its challenge
  Digest worker_nonce{}, launcher_nonce{};
  std::optional<Hello> hello;  ///< admitted
  bool tool = false;           ///< proved itself, and is no worker
};

class Server final : public ControlServer {
 public:
  Server(const Options& options, const Secret& secret, Handler handler, Log& log, Descriptor listener)
      : options_(options),
        secret_(secret),
        handler_(std::move(handler)),
        log_(log),
        listener_(std::move(listener)),
        port_(local_port(listener_)),
        thread_([this] { run(); }) {}
  ~Server() override {
    stop_ = true;
    bell_.ring();
    thread_.join();
  }
  [[nodiscard]] std::uint16_t port() const noexcept override { return port_; }
  [[nodiscard]] std::uint64_t dropped() const noexcept override { return dropped_; }
  void order_traces(const std::string& folder) override { add({std::nullopt, encode(ControlKind::trace, folder)}); }
  void order(Rank agent, const std::string& text) override { add({agent, encode(ControlKind::order, text)}); }

 private:
  struct Order {
    std::optional<Rank> to;  ///< by the first rank; nothing: all workers
    std::string frame;
  };
  void add(Order order) {
    const std::lock_guard lock(mutex_);
    orders_.push_back(std::move(order));
    bell_.ring();
  }
  void pass_orders_on();
  void run();
  void accept_all();
  /// False: the connection is over.
  bool read(Connection& connection);
  bool take(Connection& connection, const ControlFrame& frame);
  bool answer(Connection& connection, const std::string& payload);
  bool admit(Connection& connection, const std::string& payload);
  void tell_peers();
  bool drop(const Connection& connection, std::string_view why);
  [[nodiscard]] std::size_t strangers() const {
    return static_cast<std::size_t>(std::ranges::count_if(connections_, [](const Connection& c) { return !c.hello; }));
  }

  Options options_;
  Secret secret_;
  Handler handler_;
  Log& log_;
  Descriptor listener_;
  std::uint16_t port_;
  Bell bell_;
  std::list<Connection> connections_;
  bool complete_ = false;
  std::mutex mutex_;
  std::vector<Order> orders_;  ///< not passed on yet
  std::atomic<bool> stop_ = false;
  std::atomic<std::uint64_t> dropped_ = 0;
  std::thread thread_;
};

/// Said of the first many, counted of all: whoever floods the port must not flood the log.
bool Server::drop(const Connection& connection, std::string_view why) {
  constexpr std::uint64_t said = 100;
  const std::uint64_t number = ++dropped_;
  if (number > said) return false;
  const std::string who = connection.claimed ? fmt::format("a peer that claims rank {}", connection.claimed->value()) : std::string{"an unknown peer"};
  log_.warning(fmt::format("control connection on port {}: dropped {}: {}{}", port_, who, why,
                           number == said ? "; further ones are only counted (troupe inspect)" : ""));
  return false;
}

void Server::run() {
  std::vector<pollfd> waiting;
  while (!stop_) {
    waiting.assign({pollfd{bell_.get(), POLLIN, 0}, pollfd{listener_.get(), POLLIN, 0}});
    for (const Connection& connection : connections_) waiting.push_back(pollfd{connection.socket.get(), POLLIN, 0});
    ::poll(waiting.data(), waiting.size(), strangers() > 0 ? 200 : -1);
    if (stop_) return;
    pass_orders_on();
    std::size_t at = 2;
    for (auto connection = connections_.begin(); connection != connections_.end(); ++at) {
      bool keep = true;
      if (waiting[at].revents != 0) keep = read(*connection);
      if (keep && !connection->hello && Clock::now() - connection->since > options_.patience) keep = drop(*connection, "it did not prove itself in time");
      if (keep) {
        ++connection;
        continue;
      }
      const auto hello = std::move(connection->hello);
      connection = connections_.erase(connection);
      if (hello) handler_.gone(hello->first, hello->ranks);
    }
    if ((waiting[1].revents & POLLIN) != 0) accept_all();
  }
}

void Server::pass_orders_on() {
  bell_.silence();
  std::vector<Order> orders;
  {
    const std::lock_guard lock(mutex_);
    orders.swap(orders_);
  }
  for (const Order& order : orders) {
    for (const Connection& connection : connections_) {
      const bool meant = connection.hello && (order.to ? connection.hello->first == *order.to : !is_agent(connection.hello->first));
      if (meant) (void)write_all(connection.socket, order.frame, write_limit);  // one that is gone shows at the next poll
    }
  }
}

void Server::accept_all() {
  while (true) {
    Descriptor socket{::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
    if (!socket) return;
    if (strangers() >= options_.most_strangers) {
      if (++dropped_ <= 100)
        log_.warning(fmt::format("control connection on port {}: refused a peer, {} others have not proved themselves yet", port_, options_.most_strangers));
      continue;
    }
    connections_.emplace_back().socket = std::move(socket);
  }
}

bool Server::read(Connection& connection) {
  std::array<char, 65536> buffer;
  while (true) {
    const auto got = ::recv(connection.socket.get(), buffer.data(), buffer.size(), 0);
    if (got == 0) return false;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    connection.frames.feed({buffer.data(), static_cast<std::size_t>(got)});
    while (true) {
      auto frame = connection.frames.next();
      if (!frame) return drop(connection, frame.error().message);
      if (!*frame) break;
      if (!take(connection, **frame)) return false;
    }
  }
}

bool Server::take(Connection& connection, const ControlFrame& frame) {
  if (frame.kind == ControlKind::challenge && !connection.claimed) return answer(connection, frame.payload);
  if (frame.kind == ControlKind::proof && connection.claimed && !connection.hello && !connection.tool) return admit(connection, frame.payload);
  if (frame.kind == ControlKind::request && connection.tool)
    return write_all(connection.socket, encode(ControlKind::response, handler_.ask(frame.payload)), write_limit).ok();
  if (frame.kind == ControlKind::told && connection.hello && is_agent(connection.hello->first)) {
    handler_.told(connection.hello->first, frame.payload);
    return true;
  }
  return drop(connection, fmt::format("a frame of kind {} out of turn", static_cast<int>(frame.kind)));
}

bool Server::answer(Connection& connection, const std::string& payload) {
  std::uint32_t rank = 0;
  if (payload.size() != sizeof(rank) + sizeof(Digest)) return drop(connection, "a challenge of the wrong length");
  std::memcpy(&rank, payload.data(), sizeof(rank));
  std::memcpy(connection.worker_nonce.data(), payload.data() + sizeof(rank), sizeof(Digest));
  connection.claimed = Rank{rank};
  connection.launcher_nonce = random_nonce();
  connection.frames.raise_limit(control_limit_member);
  const Digest proof = launcher_proof(secret_, connection.worker_nonce, connection.launcher_nonce, Rank{rank});
  std::string reply(reinterpret_cast<const char*>(connection.launcher_nonce.data()), sizeof(Digest));
  reply.append(reinterpret_cast<const char*>(proof.data()), sizeof(Digest));
  return write_all(connection.socket, encode(ControlKind::answer, reply), write_limit).ok();
}

bool Server::admit(Connection& connection, const std::string& payload) {
  const Digest expected = worker_proof(secret_, connection.worker_nonce, connection.launcher_nonce, *connection.claimed);
  if (payload.size() < sizeof(Digest) || !equal(expected, std::as_bytes(std::span{payload}.first(sizeof(Digest)))))
    return drop(connection, "it does not know the job's secret (TROUPE_SECRET_FILE of another job?)");
  auto hello = read_hello(std::string_view{payload}.substr(sizeof(Digest)));
  if (!hello) return drop(connection, hello.error().message);
  if (hello->first == tool_rank) {
    if (!handler_.ask) return drop(connection, "a tool, and this job answers none");
    connection.tool = true;
    return write_all(connection.socket, encode(ControlKind::welcome, write(Welcome{})), write_limit).ok();
  }
  if (is_agent(hello->first) && !handler_.told) return drop(connection, "a host agent, and this job has none");
  if (const auto why = handler_.not_yet ? handler_.not_yet(*hello) : std::nullopt) {
    (void)write_all(connection.socket, encode(ControlKind::later, *why), write_limit);
    return false;
  }
  auto welcome = handler_.admit(*hello);
  if (!welcome) {
    (void)write_all(connection.socket, encode(ControlKind::refused, welcome.error().message), write_limit);
    return drop(connection, welcome.error().message);
  }
  if (!write_all(connection.socket, encode(ControlKind::welcome, write(*welcome)), write_limit)) return drop(connection, "it does not read its welcome");
  // A rank that was started again: its connection before may not have been seen to end yet.
  for (Connection& other : connections_)
    if (&other != &connection && other.hello && other.hello->first == hello->first) other.hello.reset();
  connection.hello = std::move(hello.value());
  tell_peers();
  return true;
}

void Server::tell_peers() {
  std::vector<Peer> peers;
  std::uint64_t ranks = 0;
  for (const Connection& connection : connections_) {
    if (!connection.hello) continue;
    const Hello& hello = *connection.hello;
    const bool agent = is_agent(hello.first);  // its ranks are processes of their own
    peers.push_back(Peer{hello.first, agent ? 1 : hello.ranks, hello.pid, hello.host, hello.address, hello.incarnation});
    if (!agent) ranks += hello.ranks;
  }
  if (!complete_ && ranks < options_.world_size) return;
  std::ranges::sort(peers, {}, &Peer::first);
  const std::string frame = encode(ControlKind::peers, write(peers));
  for (const Connection& connection : connections_)
    if (connection.hello) (void)write_all(connection.socket, frame, write_limit);  // one that is gone shows at the next poll
  if (!std::exchange(complete_, true)) handler_.complete(peers);
}

}  // namespace

Result<std::unique_ptr<ControlServer>> ControlServer::listen(const Options& options, const Secret& secret, Handler handler, Log& log) {
  auto listener = listen_tcp(options.address, options.port);
  if (!listener) return listener.error();
  return std::unique_ptr<ControlServer>{std::make_unique<Server>(options, secret, std::move(handler), log, std::move(listener.value()))};
}

}  // namespace troupe
