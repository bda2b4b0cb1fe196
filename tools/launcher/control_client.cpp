#include "tools/launcher/control_client.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>

#include "tools/launcher/socket.hpp"

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds answer_limit{10000}, retry_pause{100}, later_pause{500};

bool readable(int descriptor) {
  pollfd now{descriptor, POLLIN, 0};
  return ::poll(&now, 1, 0) == 1;
}

/// One frame of the other side, or why there is none.
Result<ControlFrame> receive(const Descriptor& socket, FrameCutter& frames, Clock::time_point deadline, int interrupt) {
  std::array<char, 65536> buffer;
  while (true) {
    auto frame = frames.next();
    if (!frame) return frame.error();
    if (*frame) return std::move(**frame);
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    std::array<pollfd, 2> waiting{pollfd{socket.get(), POLLIN, 0}, pollfd{interrupt, POLLIN, 0}};
    if (left <= 0 || ::poll(waiting.data(), waiting.size(), static_cast<int>(left)) == 0) return Error{"it does not answer"};
    if (waiting[1].revents != 0) return Error{"interrupted"};
    const auto got = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
    if (got == 0) return Error{"it closed the connection"};
    if (got < 0 && errno != EAGAIN && errno != EINTR) return Error{std::strerror(errno)};
    if (got > 0) frames.feed({buffer.data(), static_cast<std::size_t>(got)});
  }
}

struct Attempt {
  Descriptor socket;
  FrameCutter frames{control_limit_member};
  Welcome welcome;
  bool refused = false;  ///< trying again is of no use
  bool later = false;    ///< the other side says that it cannot decide yet
};

Result<void> shake_hands(Attempt& attempt, const Secret& secret, const Hello& hello, Clock::time_point deadline, int interrupt) {
  const Digest nonce = random_nonce();
  const std::uint32_t rank = hello.first.value();
  std::string challenge(sizeof(rank), '\0');
  std::memcpy(challenge.data(), &rank, sizeof(rank));
  challenge.append(reinterpret_cast<const char*>(nonce.data()), sizeof(Digest));
  if (auto sent = write_all(attempt.socket, encode(ControlKind::challenge, challenge), answer_limit); !sent) return sent;
  auto answer = receive(attempt.socket, attempt.frames, deadline, interrupt);
  if (!answer) return answer.error();
  if (answer->kind != ControlKind::answer || answer->payload.size() != 2 * sizeof(Digest)) return Error{"what listens there is no launcher of Troupe"};
  Digest launcher_nonce;
  std::memcpy(launcher_nonce.data(), answer->payload.data(), sizeof(Digest));
  const Digest expected = launcher_proof(secret, nonce, launcher_nonce, hello.first);
  if (!equal(expected, std::as_bytes(std::span{answer->payload}.last(sizeof(Digest)))))
    return Error{"it does not know this job's secret: another job's launcher?"};
  const Digest proof = worker_proof(secret, nonce, launcher_nonce, hello.first);
  std::string reply(reinterpret_cast<const char*>(proof.data()), sizeof(Digest));
  reply += write(hello);
  if (auto sent = write_all(attempt.socket, encode(ControlKind::proof, reply), answer_limit); !sent) return sent;
  auto verdict = receive(attempt.socket, attempt.frames, deadline, interrupt);
  if (!verdict) return verdict.error();
  attempt.refused = verdict->kind == ControlKind::refused;
  if (attempt.refused) return Error{"it refused: " + verdict->payload};
  attempt.later = verdict->kind == ControlKind::later;
  if (attempt.later) return Error{verdict->payload};
  if (verdict->kind != ControlKind::welcome) return Error{"it answered neither welcome nor refusal"};
  auto welcome = read_welcome(verdict->payload);
  if (!welcome) return welcome.error();
  attempt.welcome = std::move(welcome.value());
  return {};
}

class Client final : public ControlClient {
 public:
  Client(Attempt attempt, const Secret& secret) : attempt_(std::move(attempt)), secret_(secret) {}
  ~Client() override {
    stop_ = true;
    bell_.ring();
    if (thread_.joinable()) thread_.join();
  }
  [[nodiscard]] const Welcome& welcome() const noexcept override { return attempt_.welcome; }
  [[nodiscard]] const Secret& secret() const noexcept override { return secret_; }
  void watch(Handler handler) override {
    thread_ = std::thread([this, handler = std::move(handler)] { run(handler); });
  }
  Result<void> tell(const std::string& text) override { return write_all(attempt_.socket, encode(ControlKind::told, text), answer_limit); }

 private:
  void run(const Handler& handler) {
    std::array<char, 65536> buffer;
    while (!stop_) {
      auto frame = attempt_.frames.next();
      if (!frame) return handler.gone(frame.error().message);
      if (*frame) {
        if ((*frame)->kind == ControlKind::trace && handler.trace) handler.trace((*frame)->payload);
        if ((*frame)->kind == ControlKind::order && handler.order) handler.order((*frame)->payload);
        if ((*frame)->kind != ControlKind::peers) continue;
        auto peers = read_peers((*frame)->payload);
        if (!peers) return handler.gone(peers.error().message);
        handler.peers(*peers);
        continue;
      }
      std::array<pollfd, 2> waiting{pollfd{bell_.get(), POLLIN, 0}, pollfd{attempt_.socket.get(), POLLIN, 0}};
      ::poll(waiting.data(), waiting.size(), -1);
      if (stop_) return;
      const auto got = ::recv(attempt_.socket.get(), buffer.data(), buffer.size(), 0);
      if (got == 0) return handler.gone("the launcher closed the control connection");
      if (got < 0 && errno != EAGAIN && errno != EINTR) return handler.gone(fmt::format("the control connection broke: {}", std::strerror(errno)));
      if (got > 0) attempt_.frames.feed({buffer.data(), static_cast<std::size_t>(got)});
    }
  }

  Attempt attempt_;
  Secret secret_;
  Bell bell_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace

namespace {

/// One try. The error is worth another try unless `final`; `later`: it is the coordinator's own word that it is to be tried again.
Result<std::unique_ptr<ControlClient>> try_once(const std::string& host, std::uint16_t port, const std::function<Result<Secret>()>& secret,
                                                const std::function<Result<Hello>(const Secret&)>& hello, Clock::time_point deadline, int interrupt,
                                                bool& final, bool& later) {
  auto known = secret();
  if (!known) return known.error();
  auto said = hello(*known);
  if (!said) return said.error();
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  auto socket = connect_tcp(host, port, std::clamp(left, retry_pause, answer_limit), interrupt);
  if (!socket) return socket.error();
  Attempt attempt;
  attempt.socket = std::move(socket.value());
  auto shaken = shake_hands(attempt, *known, *said, std::min(deadline, Clock::now() + answer_limit), interrupt);
  final = attempt.refused;
  later = attempt.later;
  if (!shaken) return shaken.error();
  return std::unique_ptr<ControlClient>{std::make_unique<Client>(std::move(attempt), *known)};
}

}  // namespace

Result<std::unique_ptr<ControlClient>> ControlClient::connect(const std::string& host, std::uint16_t port, const std::function<Result<Secret>()>& secret,
                                                              const std::function<Result<Hello>(const Secret&)>& hello, std::chrono::milliseconds limit,
                                                              int interrupt) {
  return connect([&] { return Result<HostPort>{HostPort{host, port}}; }, secret, hello, limit, interrupt);
}

Result<std::unique_ptr<ControlClient>> ControlClient::connect(const std::function<Result<HostPort>()>& where, const std::function<Result<Secret>()>& secret,
                                                              const std::function<Result<Hello>(const Secret&)>& hello, std::chrono::milliseconds limit,
                                                              int interrupt) {
  const auto deadline = Clock::now() + limit;
  std::optional<std::string> told;  // why it is to come later: the last try may just run out of time
  while (true) {
    bool final = false, later = false;
    const auto there = where();
    const std::string coordinator = there ? fmt::format("the coordinator at {}:{}", there->host, there->port) : "the coordinator";
    auto client = there ? try_once(there->host, there->port, secret, hello, deadline, interrupt, final, later) : there.error();
    if (client) return client;
    if (later) told = client.error().message;
    const auto pause = later ? later_pause : retry_pause;
    if (readable(interrupt)) return Error{fmt::format("interrupted before it had joined {}: {}", coordinator, client.error().message)};
    if (final) return Error{fmt::format("cannot join {}: {}", coordinator, client.error().message)};
    if (Clock::now() + pause >= deadline)
      return Error{
          fmt::format("cannot join {} within {:.1f} s: {}", coordinator, std::chrono::duration<double>(limit).count(), told.value_or(client.error().message))};
    pollfd signal{interrupt, POLLIN, 0};
    ::poll(&signal, 1, static_cast<int>(pause.count()));
  }
}

Result<std::string> ask_job(const std::string& host, std::uint16_t port, const Secret& secret, const std::string& request, std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  auto socket = connect_tcp(host, port, limit, -1);
  if (!socket) return socket.error();
  Attempt attempt;
  attempt.socket = std::move(socket.value());
  Hello hello;
  hello.first = tool_rank;
  hello.ranks = 0;
  if (auto shaken = shake_hands(attempt, secret, hello, deadline, -1); !shaken) return shaken.error();
  if (auto sent = write_all(attempt.socket, encode(ControlKind::request, request), limit); !sent) return sent.error();
  auto answer = receive(attempt.socket, attempt.frames, deadline, -1);
  if (!answer) return answer.error();
  if (answer->kind != ControlKind::response) return Error{"it answered something else than a tool asks for"};
  return std::move(answer->payload);
}

}  // namespace troupe
