#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>

#include "tools/launcher/control_client.hpp"
#include "tools/launcher/control_server.hpp"
#include "tools/launcher/live_requests.hpp"
#include "tools/launcher/socket.hpp"

/// Hostile connections and requests against a listening control port: TROUPE_FUZZ_MESSAGES of them (3,000), from TROUPE_FUZZ_SEED (1).
namespace troupe {
namespace {

using std::chrono::seconds;

std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

class Fuzz : public ::testing::Test {
 protected:
  Fuzz() : server_(listen()) {}

  std::unique_ptr<ControlServer> listen() {
    ControlServer::Handler handler{[](const Hello&) -> Result<Welcome> { return Error{"not wanted"}; }, [](Rank, std::uint32_t) {},
                                   [](const std::vector<Peer>&) {}, [this](const std::string& request) { return answer(request); }};
    return std::move(ControlServer::listen({.patience = std::chrono::milliseconds{500}}, secret_, std::move(handler), *log_).value());
  }
  std::string answer(const std::string& request) {
    return answer_request(
        request, board_, {}, Nanos{0}, [] { return Result<std::string>(Error{"no"}); }, [](const ChangeRequest&) -> Result<Agreed> { return Error{"no"}; });
  }
  std::uint64_t draw(std::uint64_t below) { return engine_() % below; }
  std::string noise(std::size_t most) {
    std::string bytes(draw(most + 1), '\0');
    for (char& byte : bytes) byte = static_cast<char>(engine_());
    return bytes;
  }
  void spoil(std::string& bytes) {
    if (bytes.empty()) return;
    switch (draw(3)) {
      case 0: bytes[draw(bytes.size())] ^= static_cast<char>(1U << draw(8)); return;
      case 1: bytes.resize(draw(bytes.size())); return;
      default: bytes.insert(draw(bytes.size()), noise(40)); return;
    }
  }
  /// Reset at the end: a million of them would use up the ports otherwise.
  Descriptor connected() {
    auto socket = connect_tcp("127.0.0.1", server_->port(), seconds{10});
    if (!socket) throw std::runtime_error(socket.error().message);
    const linger at_once{1, 0};
    ::setsockopt(socket->get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    return std::move(socket.value());
  }
  static std::string challenge(std::uint32_t rank) {
    std::string payload(sizeof(rank), '\0');
    std::memcpy(payload.data(), &rank, sizeof(rank));
    const Digest nonce = random_nonce();
    payload.append(reinterpret_cast<const char*>(nonce.data()), nonce.size());
    return encode(ControlKind::challenge, payload);
  }
  /// One stranger: noise, a spoiled challenge, a proof without the secret, or a frame that would be larger than memory.
  void be_hostile() {
    const Descriptor socket = connected();
    std::string bytes;
    switch (draw(5)) {
      case 0: bytes = noise(2000); break;
      case 1:
        bytes = challenge(static_cast<std::uint32_t>(engine_()));
        spoil(bytes);
        break;
      case 2: bytes = challenge(0) + encode(ControlKind::proof, noise(400)); break;
      case 3: bytes = challenge(0) + encode(static_cast<ControlKind>(draw(256)), noise(100)) + noise(100); break;
      default: bytes = std::string(4, '\xff') + noise(100); break;
    }
    (void)write_all(socket, bytes, seconds{5});
    if (draw(4) != 0) return;  // and is gone
    ::shutdown(socket.get(), SHUT_WR);
    std::array<char, 4096> buffer{};
    pollfd waiting{socket.get(), POLLIN, 0};
    ssize_t got = 1;
    while (got > 0 && ::poll(&waiting, 1, 20000) == 1) got = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
    EXPECT_LE(got, 0) << "it neither drops this stranger nor answers";
  }
  /// A request of somebody who knows the secret and yet writes nonsense.
  std::string hostile_request() {
    static const std::array<std::string, 4> good{R"({"ask":"inspect"})", R"({"ask":"inject","rule":"site=lane action=fail"})",
                                                 R"({"ask":"set","changes":["optimizer.lr=1"],"dry_run":true})", R"({"ask":"set","changes":[[[[{"a":1}]]]]})"};
    if (draw(8) == 0) return std::string(draw(3000), '[');  // depth
    std::string request = good[draw(good.size())];
    spoil(request);
    return request;
  }
  void expect_answer() {
    const auto answered = ask_job("127.0.0.1", server_->port(), secret_, R"({"ask":"inspect"})", seconds{20});
    ASSERT_TRUE(answered) << answered.error().message;
    ASSERT_NE(answered->find("\"text\""), std::string::npos) << *answered;
  }

  std::mt19937_64 engine_{number_from("TROUPE_FUZZ_SEED", 1)};
  const Secret secret_ = Secret::random();
  std::unique_ptr<Log> log_ = make_null_log();
  JobBoard board_;
  std::unique_ptr<ControlServer> server_;
};

TEST_F(Fuzz, HostileConnectionsAndRequestsNeverCrashHangOrGrowTheControlPort) {
  const std::uint64_t messages = number_from("TROUPE_FUZZ_MESSAGES", 3000);
  const auto began = std::chrono::steady_clock::now();
  std::uint64_t strangers = 0, settled = 0;
  for (std::uint64_t i = 0; i < messages; ++i) {
    if (i == messages / 4) settled = resident_bytes();
    if (messages >= 100000 && i % (messages / 10) == 0)
      fmt::print("{} of {} messages, {} strangers, {} connections dropped, {:.1f} MiB resident, {:.0f} s\n", i, messages, strangers, server_->dropped(),
                 static_cast<double>(resident_bytes()) / 1048576.0, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    if (i % 500 == 499) expect_answer();
    if (HasFatalFailure()) return;
    if (draw(4) == 0) {
      be_hostile();
      ++strangers;
    } else if (const std::string request = hostile_request(); draw(50) == 0) {
      (void)ask_job("127.0.0.1", server_->port(), secret_, request, seconds{20});
    } else {
      EXPECT_FALSE(answer(request).empty());  // what the port does with it, without the time of a connection
    }
  }
  expect_answer();
  fmt::print("seed {}: {} messages, of them {} strangers; {} connections dropped; {:.1f} MiB resident, {:.1f} MiB after a quarter; {:.0f} s\n",
             number_from("TROUPE_FUZZ_SEED", 1), messages, strangers, server_->dropped(), static_cast<double>(resident_bytes()) / 1048576.0,
             static_cast<double>(settled) / 1048576.0, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  EXPECT_GT(server_->dropped(), strangers / 20) << "of " << strangers << "; most were reset, some before their nonsense was looked at";
  EXPECT_LT(resident_bytes(), settled + (std::uint64_t{32} << 20U));
}

TEST_F(Fuzz, AWrongSecretAndAReplayedProofAreDroppedAndCounted) {
  const auto other = Secret::random();
  const auto asked = ask_job("127.0.0.1", server_->port(), other, R"({"ask":"inspect"})", seconds{2});
  EXPECT_FALSE(asked);
  // A stranger who has seen another's whole conversation and says the same again.
  const std::string said = challenge(tool_rank.value());
  const auto converse = [&](const std::string& proof) {
    const Descriptor socket = connected();
    (void)write_all(socket, said, seconds{5});
    (void)write_all(socket, encode(ControlKind::proof, proof), seconds{5});
    std::array<char, 4096> buffer{};
    std::string heard;
    for (pollfd waiting{socket.get(), POLLIN, 0}; ::poll(&waiting, 1, 5000) == 1;) {
      const auto got = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
      if (got <= 0) break;
      heard.append(buffer.data(), static_cast<std::size_t>(got));
    }
    return heard;
  };
  const std::uint64_t before = server_->dropped();
  const std::string heard = converse(noise(64) + R"({"first":4294967294,"ranks":0})");
  EXPECT_LE(heard.size(), 5U + 2 * sizeof(Digest)) << "the answer to the challenge, and nothing more";
  EXPECT_GT(server_->dropped(), before);
  expect_answer();
}

}  // namespace
}  // namespace troupe
