#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <future>
#include <latch>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "tests/support/temporary_folder.hpp"
#include "tools/dashboard/connection_queue.hpp"
#include "tools/dashboard/dashboard.hpp"
#include "tools/launcher/control_server.hpp"
#include "tools/launcher/live_requests.hpp"
#include "tools/launcher/socket.hpp"

/// Hostile HTTP requests against both ports of a launcher: TROUPE_FUZZ_MESSAGES of them (10,000), from TROUPE_FUZZ_SEED (1).
namespace troupe {
namespace {

using std::chrono::seconds;
using testing::TemporaryFolder;

std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

double resident_mebibytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t all = 0, resident = 0;
  file >> all >> resident;
  return static_cast<double>(resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))) / 1048576.0;
}

constexpr const char* token = "0123456789abcdef0123456789abcdef";
constexpr int patience = 30000;  ///< milliseconds within which an answer or an end must come; the machine may be busy

/// The ports of a launcher whose job stands at a step, without the job.
class Launcher {
 public:
  Launcher() {
    folder_.write("metrics.jsonl", R"({"step":1,"loss":5.5})"
                                   "\n"
                                   R"({"step":2,"loss":null,"outcome":"skip"})"
                                   "\n");
    folder_.write("journal.jsonl", "{\"event\":\"joined\"}\nno json\n");
    DashboardOptions options;
    options.run_folder = folder_.path();
    options.token = token;
    options.ask = [this](const std::string& request) { return ask(request); };
    options.settings = [] { return std::string{R"({"optimizer.lr": "1e-3"})"}; };
    options.step_times = std::make_shared<StepTimes>();
    dashboard_ = std::move(Dashboard::start(std::move(options), *log_).value());
    const std::string url = dashboard_->url();
    http_port = static_cast<std::uint16_t>(std::stoul(url.substr(url.rfind(':') + 1)));
    ControlServer::Handler handler{[](const Hello&) -> Result<Welcome> { return Error{"not wanted"}; }, [](Rank, std::uint32_t) {},
                                   [](const std::vector<Peer>&) {}, [this](const std::string& request) { return ask(request); }};
    control_ = std::move(ControlServer::listen({.patience = std::chrono::milliseconds{500}}, Secret::random(), std::move(handler), *log_).value());
    control_port = control_->port();
  }
  [[nodiscard]] std::uint64_t changes() const noexcept { return changes_; }
  [[nodiscard]] std::uint64_t dropped() const noexcept { return control_->dropped(); }
  std::uint16_t http_port = 0, control_port = 0;

 private:
  std::string ask(const std::string& request) {
    return answer_request(
        request, board_, {}, Nanos{0}, [] { return Result<std::string>(Error{"no timeline here"}); },
        [this](const ChangeRequest&) -> Result<Agreed> {
          ++changes_;
          return Error{"nothing is changed here"};
        });
  }
  const TemporaryFolder folder_;
  const std::unique_ptr<Log> log_ = make_null_log();
  JobBoard board_;
  std::atomic<std::uint64_t> changes_{0};
  std::unique_ptr<Dashboard> dashboard_;
  std::unique_ptr<ControlServer> control_;
};

/// From an address of its own each: the ports of one alone would be used up by a million connections, of which each is remembered for a minute.
Descriptor connected(std::uint16_t port, std::uint64_t source) {
  Descriptor socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in from{}, to{};
  from.sin_family = to.sin_family = AF_INET;
  from.sin_addr.s_addr = htonl(static_cast<std::uint32_t>(INADDR_LOOPBACK + source % 60000));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(port);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&from), sizeof(from)) != 0 ||
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0)
    throw std::runtime_error(fmt::format("cannot connect to port {}: {}", port, std::strerror(errno)));
  return socket;
}

/// What the other side says until it closes the connection; nothing if it does not within `patience`. After a pause of so many milliseconds it is told
/// that nothing more comes, for a request that is not whole would be waited for; told before, it would not answer.
std::optional<std::string> heard_to_the_end(const Descriptor& socket, int pause = patience) {
  std::string heard;
  std::array<char, 16384> buffer{};
  for (bool told = false;;) {
    pollfd waiting{socket.get(), POLLIN, 0};
    if (::poll(&waiting, 1, told ? patience : pause) != 1) {
      if (std::exchange(told, true) || pause == patience) return std::nullopt;
      ::shutdown(socket.get(), SHUT_WR);
      continue;
    }
    const auto got = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
    if (got <= 0) return heard;  // reset, too: what was not read when it closed is told by that
    heard.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

/// What its connections have shown.
struct Tally {
  std::uint64_t requests = 0, answers = 0, refused = 0, reset = 0;
};

/// One client, in a thread of its own.
class Stranger {
 public:
  Stranger(const Launcher& launcher, std::uint64_t seed) : launcher_(launcher), engine_(seed) {}

  /// A connection with some requests: most are heard out, some end in a reset.
  void visit() {
    const bool http = draw(40) != 0;
    const Descriptor socket = connected(http ? launcher_.http_port : launcher_.control_port, engine_());
    std::string all;
    const std::uint64_t requests = 1 + draw(4);
    for (std::uint64_t i = 0; i < requests; ++i) all += hostile_request();
    tally.requests += requests;
    (void)write_all(socket, all, seconds{30});
    if (draw(8) == 0) {
      const linger at_once{1, 0};
      ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
      ++tally.reset;
      return;
    }
    const auto heard = heard_to_the_end(socket, 5);
    ASSERT_TRUE(heard) << "no answer and no end to:\n" << all;
    if (!http) {
      EXPECT_EQ(*heard, "") << "the control port says nothing to who cannot challenge it";
    }
    for (std::size_t at = heard->find("HTTP/1.1 "); at != std::string::npos; at = heard->find("HTTP/1.1 ", at + 1)) {
      ++tally.answers;
      tally.refused += heard->compare(at + 9, 1, "4") == 0 ? 1 : 0;
    }
  }
  Tally tally;

 private:
  std::uint64_t draw(std::uint64_t below) { return engine_() % below; }
  std::string noise(std::size_t most) {
    std::string bytes(draw(most + 1), '\0');
    for (char& byte : bytes) byte = static_cast<char>(engine_());
    return bytes;
  }
  std::string header() {
    switch (draw(10)) {
      case 0: return fmt::format("Content-Length: {}\r\n", engine_());
      case 1: return "Transfer-Encoding: chunked\r\n";
      case 2: return "X-Troupe-Token: " + noise(64) + "\r\n";
      case 3: return "Cookie: " + std::string(draw(9000), 'a') + "\r\n";
      case 4: return "Range: bytes=0-1,5-,-7," + noise(20) + "\r\n";
      case 5: return "Expect: 100-continue\r\n";
      case 6: return "Content-Type: multipart/form-data; boundary=" + noise(20) + "\r\n";
      case 7: return "Accept-Encoding: gzip, br, deflate\r\nConnection: " + noise(10) + "\r\n";
      default: return {};
    }
  }
  /// A request that is right but for what spoils it. The token comes with those alone that only look.
  std::string hostile_request() {
    static const std::array<std::string, 12> paths{"/",
                                                   "/api/state",
                                                   "/api/history?points=99999999999999999999",
                                                   "/api/history?points=0",
                                                   "/api/history?points=-1",
                                                   "/api/journal",
                                                   "/api/set",
                                                   "/metrics",
                                                   "/timeline?steps=nan",
                                                   "/../../etc/passwd",
                                                   "/%00%ff%",
                                                   "/?token=0000"};
    if (draw(10) == 0) return noise(2000);
    const bool post = draw(3) == 0;
    const std::string body = !post          ? std::string{}
                             : draw(3) == 0 ? std::string(draw(6000), '[')
                                            : R"({"changes": ["optimizer.lr=1"], "dry_run": )" + noise(30) + "}";
    const std::string& path = paths[draw(paths.size())];
    std::string request = fmt::format("{} {} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n", post ? "POST" : "GET", path, launcher_.http_port);
    const bool waits = path.starts_with("/timeline");  // for a step, which never comes here
    if (!post && !waits && draw(2) == 0) request += fmt::format("X-Troupe-Token: {}\r\n", token);
    request += header();
    if (post && draw(4) != 0) request += fmt::format("Content-Length: {}\r\n", body.size());
    request += "\r\n" + body;
    switch (draw(5)) {
      case 0: request[draw(request.size())] ^= static_cast<char>(1U << draw(8)); break;
      case 1: request.resize(draw(request.size() + 1)); break;
      case 2: request.insert(draw(request.size()), noise(40)); break;
      default: break;
    }
    return request;
  }

  const Launcher& launcher_;
  std::mt19937_64 engine_;
};

void expect_metrics(const Launcher& launcher) {
  const Descriptor socket = connected(launcher.http_port, 0);
  ASSERT_TRUE(write_all(socket, fmt::format("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n\r\n", launcher.http_port), seconds{30}));
  const auto heard = heard_to_the_end(socket);
  ASSERT_TRUE(heard) << "it hangs";
  EXPECT_TRUE(heard->starts_with("HTTP/1.1 200") && heard->find("troupe_step") != std::string::npos) << *heard;
}

TEST(DashboardFuzz, HostileRequestsNeverCrashHangOrGrowTheLauncherAndChangeNothing) {
  const std::uint64_t messages = number_from("TROUPE_FUZZ_MESSAGES", 10000), seed = number_from("TROUPE_FUZZ_SEED", 1);
  const auto began = std::chrono::steady_clock::now();
  const Launcher launcher;
  std::vector<Stranger> strangers;
  for (std::uint64_t i = 0; i < 16; ++i) strangers.emplace_back(launcher, seed * 1000 + i);
  constexpr int rounds = 8;
  double settled = 0;
  Tally all;
  for (int round = 1; round <= rounds && !::testing::Test::HasFailure(); ++round) {
    {
      std::vector<std::jthread> threads;
      threads.reserve(strangers.size());
      for (Stranger& stranger : strangers)
        threads.emplace_back([&stranger, until = messages * static_cast<std::uint64_t>(round) / rounds / strangers.size()] {
          while (stranger.tally.requests < until && !::testing::Test::HasFailure()) stranger.visit();
        });
    }
    expect_metrics(launcher);
    if (round == 2) settled = resident_mebibytes();
    all = {};
    for (const Stranger& stranger : strangers) {
      all.requests += stranger.tally.requests;
      all.answers += stranger.tally.answers;
      all.refused += stranger.tally.refused;
      all.reset += stranger.tally.reset;
    }
    fmt::print("seed {}: {} requests, {} answers, {} of them refusals, {} connections reset, {} dropped by the control port; {:.1f} MiB resident; {:.0f} s\n",
               seed, all.requests, all.answers, all.refused, all.reset, launcher.dropped(), resident_mebibytes(),
               std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  }
  EXPECT_EQ(launcher.changes(), 0U) << "none that would change something knew the token";
  EXPECT_GT(all.refused, messages / 200) << "most were not even asked";
  EXPECT_GT(all.answers, all.refused) << "none was answered";
  EXPECT_GT(launcher.dropped(), messages / 1000);
  EXPECT_LT(resident_mebibytes(), settled + 32);
}

TEST(DashboardFuzz, ConnectionsThatSayNothingOrHalfOfSomethingKeepNobodyOut) {
  const Launcher launcher;
  std::vector<Descriptor> silent;
  for (std::uint64_t i = 0; i < 80; ++i) {
    silent.push_back(connected(launcher.http_port, i));
    if (i % 2 == 0) (void)write_all(silent.back(), "GET /api/state HTTP/1.1\r\nHos", seconds{1});
  }
  expect_metrics(launcher);
}

TEST(ConnectionQueue, HoldsWhoeverAcceptsBackOnceAsManyWaitAsMay) {
  constexpr int connections = 10;
  ConnectionQueue queue(2, 3);
  std::latch busy(2);
  std::promise<void> end;
  const auto ended = end.get_future().share();
  std::atomic<int> taken{0}, served{0};
  std::jthread accepts([&] {
    for (int i = 0; i < connections; ++i) {
      if (i == 2) busy.wait();  // so that the third is not taken for one that waits
      queue.enqueue([&, i] {
        if (i < 2) busy.count_down();
        ended.wait();
        ++served;
      });
      ++taken;
    }
  });
  while (taken < connections && !(taken >= 2 && queue.holds_back())) std::this_thread::yield();
  EXPECT_EQ(taken, 5) << "two are served, three wait, and the sixth is held back";
  end.set_value();
  accepts.join();
  queue.shutdown();
  EXPECT_EQ(served, connections);
}

}  // namespace
}  // namespace troupe
