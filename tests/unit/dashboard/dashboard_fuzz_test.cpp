#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <random>

#include "tools/dashboard/dashboard.hpp"
#include "tools/launcher/socket.hpp"

/// Hostile HTTP requests against a dashboard: TROUPE_FUZZ_MESSAGES of them (2,000), from TROUPE_FUZZ_SEED (1).
namespace troupe {
namespace {

using std::chrono::seconds;

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

class DashboardFuzz : public ::testing::Test {
 protected:
  DashboardFuzz() {
    DashboardOptions options;
    options.run_folder = "/nonexistent";
    options.token = token;
    options.ask = [this](const std::string& request) -> std::string {
      changes_ += request.find("\"set\"") != std::string::npos ? 1 : 0;
      return R"({"text": "", "view": {"step": 1, "last_step": 2, "epoch": 1, "respawns": 0, "rollbacks": 0, "seconds_since_step": 0, "ranks": []}})";
    };
    options.settings = [] { return std::string{"{}"}; };
    options.step_times = std::make_shared<StepTimes>();
    dashboard_ = std::move(Dashboard::start(std::move(options), *log_).value());
    const std::string url = dashboard_->url();
    const auto colon = url.rfind(':');
    port_ = static_cast<std::uint16_t>(std::stoul(url.substr(colon + 1)));
  }
  std::uint64_t draw(std::uint64_t below) { return engine_() % below; }
  std::string noise(std::size_t most) {
    std::string bytes(draw(most + 1), '\0');
    for (char& byte : bytes) byte = static_cast<char>(engine_());
    return bytes;
  }
  /// A request that is right, but for what spoils it. Without the token nothing of it may count.
  std::string hostile_request() {
    static const std::array<std::string, 6> paths{"/", "/api/state", "/api/history?points=99999999999999999999", "/api/journal", "/api/set", "/metrics"};
    const std::string body = draw(4) == 0 ? std::string(draw(4000), '[') : R"({"changes": ["optimizer.lr=1"], "dry_run": )" + noise(30);
    std::string request = fmt::format("{} {} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n", draw(2) == 0 ? "GET" : "POST", paths[draw(paths.size())], port_);
    switch (draw(6)) {
      case 0: request += fmt::format("Content-Length: {}\r\n", engine_()); break;
      case 1: request += "Transfer-Encoding: chunked\r\n"; break;
      case 2: request += "X-Troupe-Token: " + noise(64) + "\r\n"; break;
      case 3: request += "Cookie: " + std::string(draw(9000), 'a') + "\r\n"; break;
      default: request += fmt::format("Content-Length: {}\r\n", body.size()); break;
    }
    request += "\r\n" + body;
    switch (draw(4)) {
      case 0: request[draw(request.size())] ^= static_cast<char>(1U << draw(8)); break;
      case 1: request.resize(draw(request.size() + 1)); break;
      case 2: request.insert(draw(request.size()), noise(40)); break;
      default: break;
    }
    return draw(10) == 0 ? noise(2000) : request;
  }
  Descriptor connected() {
    auto socket = connect_tcp("127.0.0.1", port_, seconds{10});
    if (!socket) throw std::runtime_error(socket.error().message);
    const linger at_once{1, 0};  // reset at the end: a million of them would use up the ports otherwise
    ::setsockopt(socket->get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    return std::move(socket.value());
  }
  /// What it answers within 20 s.
  std::string answer_to(const std::string& request) {
    const Descriptor socket = connected();
    (void)write_all(socket, request, seconds{5});
    std::array<char, 4096> buffer{};
    pollfd waiting{socket.get(), POLLIN, 0};
    if (::poll(&waiting, 1, 20000) != 1) return {};
    const auto got = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
    return {buffer.data(), got > 0 ? static_cast<std::size_t>(got) : 0U};
  }
  void expect_answer() {
    const std::string answer = answer_to(fmt::format("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n\r\n", port_));
    ASSERT_TRUE(answer.starts_with("HTTP/1.1 200")) << answer;
  }

  static constexpr const char* token = "0123456789abcdef0123456789abcdef";
  std::mt19937_64 engine_{number_from("TROUPE_FUZZ_SEED", 1)};
  std::unique_ptr<Log> log_ = make_null_log();
  std::atomic<std::uint64_t> changes_{0};
  std::unique_ptr<Dashboard> dashboard_;
  std::uint16_t port_ = 0;
};

TEST_F(DashboardFuzz, HostileRequestsNeverCrashHangOrGrowItAndChangeNothing) {
  const std::uint64_t messages = number_from("TROUPE_FUZZ_MESSAGES", 2000);
  const auto began = std::chrono::steady_clock::now();
  double settled = 0;
  for (std::uint64_t i = 0; i < messages; ++i) {
    if (i == messages / 4) settled = resident_mebibytes();
    if (i % 100 == 99) expect_answer();  // and so no more wait than a listening socket holds
    if (HasFatalFailure()) return;
    (void)write_all(connected(), hostile_request(), seconds{5});
  }
  expect_answer();
  const double seconds_taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  fmt::print("seed {}: {} requests; {:.1f} MiB resident, {:.1f} MiB after a quarter; {:.0f} s\n", number_from("TROUPE_FUZZ_SEED", 1), messages,
             resident_mebibytes(), settled, seconds_taken);
  EXPECT_EQ(changes_, 0U) << "none of them knew the token";
  EXPECT_LT(resident_mebibytes(), settled + 32);
}

}  // namespace
}  // namespace troupe
