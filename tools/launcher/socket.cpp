#include "tools/launcher/socket.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <stdexcept>

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;

int milliseconds_left(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return left < 0 ? 0 : static_cast<int>(left);
}

Result<std::shared_ptr<addrinfo>> resolve(const std::string& host, std::uint16_t port, bool passive) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = passive ? AI_PASSIVE : 0;
  addrinfo* list = nullptr;
  const int problem = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (problem != 0) return Error{fmt::format("cannot resolve host {}: {}", host, ::gai_strerror(problem))};
  return std::shared_ptr<addrinfo>(list, &::freeaddrinfo);
}

Result<void> await_connection(int fd, Clock::time_point deadline, int interrupt) {
  std::array<pollfd, 2> waiting{pollfd{fd, POLLOUT, 0}, pollfd{interrupt, POLLIN, 0}};
  const int ready = ::poll(waiting.data(), waiting.size(), milliseconds_left(deadline));
  if (ready == 0) return Error{"no answer"};
  if (waiting[1].revents != 0) return Error{"interrupted"};
  int problem = 0;
  socklen_t size = sizeof(problem);
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &size) != 0 || problem != 0) return Error{std::strerror(problem)};
  return {};
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

namespace {

/// The other side's host may vanish, or the way to it: nobody closes the connection then. Noticed after half a minute of silence; what a listening socket
/// is told, its connections inherit (tcp(7)).
void notice_silence(const Descriptor& socket) {
  const auto set = [&](int level, int option, int value) { ::setsockopt(socket.get(), level, option, &value, sizeof(value)); };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 4);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 30000);  // of what was sent and is not acknowledged
}

/// Where nobody listens on a port of the range for outgoing connections, the system may give a connection to it that very port: it then meets
/// itself, and holds the port against whoever is to listen there.
bool meets_itself(const Descriptor& socket) {
  sockaddr_storage own{}, other{};
  socklen_t own_size = sizeof(own), other_size = sizeof(other);
  return ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &own_size) == 0 &&
         ::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&other), &other_size) == 0 && own_size == other_size &&
         std::memcmp(&own, &other, own_size) == 0;
}

}  // namespace

Result<Descriptor> listen_tcp(const std::string& address, std::uint16_t port) {
  auto found = resolve(address, port, true);
  if (!found) return found.error();
  const addrinfo& where = **found;
  Descriptor socket{::socket(where.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  const auto failed = [&](const char* what) { return Error{fmt::format("cannot {} {} port {}: {}", what, address, port, std::strerror(errno))}; };
  if (!socket) return failed("open a socket for");
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));  // a leftover in TIME_WAIT is no reason to refuse
  notice_silence(socket);
  if (::bind(socket.get(), where.ai_addr, where.ai_addrlen) != 0) {
    if (errno == EADDRINUSE)
      return Error{fmt::format("port {} on {} is in use by another process: choose another port, or leave it 0 for any free one", port, address)};
    return failed("bind");
  }
  if (::listen(socket.get(), SOMAXCONN) != 0) {
    if (errno == EADDRINUSE)
      return Error{fmt::format("port {} on {} is in use by another process: choose another port, or leave it 0 for any free one", port, address)};
    return failed("listen on");
  }
  return socket;
}

std::uint16_t local_port(const Descriptor& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

Result<Descriptor> connect_tcp(const std::string& host, std::uint16_t port, std::chrono::milliseconds limit, int interrupt) {
  const auto deadline = Clock::now() + limit;
  auto found = resolve(host, port, false);
  if (!found) return found.error();
  std::string problem = "no address";
  for (const addrinfo* where = found->get(); where != nullptr; where = where->ai_next) {
    Descriptor socket{::socket(where->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
    if (!socket) continue;
    if (::connect(socket.get(), where->ai_addr, where->ai_addrlen) != 0 && errno != EINPROGRESS) {
      problem = std::strerror(errno);
      continue;
    }
    if (auto connected = await_connection(socket.get(), deadline, interrupt); !connected) {
      problem = connected.error().message;
      continue;
    }
    if (meets_itself(socket)) {
      problem = std::strerror(ECONNREFUSED);
      continue;
    }
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    notice_silence(socket);
    return socket;
  }
  return Error{fmt::format("cannot connect to {} port {}: {}", host, port, problem)};
}

Result<HostPort> parse_host_port(std::string_view text) {
  const auto colon = text.rfind(':');
  HostPort result;
  const auto wrong = [&] { return Error{fmt::format("expected host:port, found \"{}\"", text)}; };
  if (colon == std::string_view::npos || colon == 0) return wrong();
  std::string_view host = text.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  const std::string_view number = text.substr(colon + 1);
  const auto [end, problem] = std::from_chars(number.data(), number.data() + number.size(), result.port);
  if (problem != std::errc{} || end != number.data() + number.size() || host.empty()) return wrong();
  result.host = host;
  return result;
}

Result<void> write_all(const Descriptor& socket, std::string_view bytes, std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  while (!bytes.empty()) {
    const auto sent = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return Error{fmt::format("cannot send: {}", std::strerror(errno))};
    pollfd waiting{socket.get(), POLLOUT, 0};
    if (::poll(&waiting, 1, milliseconds_left(deadline)) == 0) return Error{"cannot send: the other side does not read"};
  }
  return {};
}

Bell::Bell() : descriptor_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!descriptor_) throw std::runtime_error("eventfd failed");
}
void Bell::ring() const noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(descriptor_.get(), &one, sizeof(one));
}
void Bell::silence() const noexcept {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto taken = ::read(descriptor_.get(), &count, sizeof(count));
}

}  // namespace troupe
