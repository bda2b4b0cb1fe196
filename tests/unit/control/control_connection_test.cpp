#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tools/launcher/control_client.hpp"
#include "tools/launcher/control_server.hpp"
#include "tools/launcher/socket.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;

/// What the server told, for the test's thread to wait on.
class Heard {
 public:
  void add(std::string what) {
    const std::lock_guard lock(mutex_);
    all_.push_back(std::move(what));
    changed_.notify_all();
  }
  bool has(const std::string& what) {
    const std::lock_guard lock(mutex_);
    return std::find(all_.begin(), all_.end(), what) != all_.end();
  }
  bool wait_for(const std::string& what) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 10s, [&] { return std::find(all_.begin(), all_.end(), what) != all_.end(); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> all_;
};

class ControlConnection : public ::testing::Test {
 protected:
  void listen(std::uint32_t world_size, std::chrono::milliseconds patience = 10s) {
    ControlServer::Options options;
    options.world_size = world_size;
    options.patience = patience;
    ControlServer::Handler handler;
    handler.admit = [this](const Hello& hello) -> Result<Welcome> {
      if (hello.pid == 13) return Error{"no luck"};
      heard_.add("hello " + std::to_string(hello.first.value()));
      Welcome welcome;
      welcome.config = "[training]\nsteps = 3\n";
      welcome.job = "job";
      welcome.restore_step = Step{4};
      welcome.address = {std::byte{1}, std::byte{255}};
      return welcome;
    };
    handler.not_yet = [this](const Hello&) { return not_yet_-- > 0 ? std::optional(std::string{"we are thinking"}) : std::nullopt; };
    handler.gone = [this](Rank first, std::uint32_t) { heard_.add("gone " + std::to_string(first.value())); };
    handler.complete = [this](const std::vector<Peer>& peers) { heard_.add("complete " + std::to_string(peers.size())); };
    auto server = ControlServer::listen(options, secret_, handler, *log_);
    ASSERT_TRUE(server.ok()) << server.error().message;
    server_ = std::move(server.value());
  }

  Result<std::unique_ptr<ControlClient>> connect(std::uint32_t rank, std::chrono::milliseconds limit = 10s, std::uint32_t pid = 1) {
    return ControlClient::connect(
        "127.0.0.1", server_->port(), [this] { return Result<Secret>{client_secret_}; },
        [=](const Secret&) {
          Hello hello;
          hello.first = Rank{rank};
          hello.world_size = 2;
          hello.pid = pid;
          hello.host = "here";
          hello.address = {std::byte{static_cast<unsigned char>(rank)}};
          return Result<Hello>{hello};
        },
        limit);
  }

  /// Waits until the server closes this connection.
  static bool closed_by_server(const Descriptor& socket) {
    char byte = 0;
    pollfd waiting{socket.get(), POLLIN, 0};
    while (::poll(&waiting, 1, 10000) == 1) {
      const auto got = ::recv(socket.get(), &byte, 1, 0);
      if (got <= 0) return true;
    }
    return false;
  }

  std::atomic<int> not_yet_ = 0;  ///< so often a client is to come again
  Secret secret_ = Secret::random(), client_secret_ = secret_;
  std::unique_ptr<Log> log_ = make_null_log();
  Heard heard_;
  std::unique_ptr<ControlServer> server_;
};

TEST_F(ControlConnection, AReadableDescriptorInterruptsAClientWhereverItWaits) {
  const auto join = [this](std::uint16_t port, const Bell& interrupt) {
    return ControlClient::connect(
        "127.0.0.1", port, [this] { return Result<Secret>{client_secret_}; }, [](const Secret&) { return Result<Hello>{Hello{}}; }, 1h, interrupt.get());
  };
  const auto silent = listen_tcp("127.0.0.1", 0);  // connects, and never answers
  ASSERT_TRUE(silent.ok());
  std::uint16_t closed = 0;
  {
    const auto gone = listen_tcp("127.0.0.1", 0);
    closed = local_port(*gone);
  }
  for (const std::uint16_t port : {local_port(*silent), closed}) {
    const Bell interrupt;
    std::jthread caller([&] { interrupt.ring(); });
    const auto client = join(port, interrupt);
    ASSERT_FALSE(client.ok());
    EXPECT_NE(client.error().message.find("interrupted before it had joined the coordinator"), std::string::npos) << client.error().message;
  }
}

TEST_F(ControlConnection, GivesWorkersTheConfigurationAndEachOthersAddresses) {
  listen(2);
  auto first = connect(0), second = connect(1);
  ASSERT_TRUE(first.ok()) << first.error().message;
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ((*first)->welcome().config, "[training]\nsteps = 3\n");
  EXPECT_EQ((*first)->welcome().restore_step, Step{4});
  EXPECT_EQ((*first)->welcome().address, (std::vector{std::byte{1}, std::byte{255}}));
  EXPECT_TRUE(heard_.wait_for("complete 2"));
  Heard told;
  (*first)->watch({[&](const std::vector<Peer>& peers) { told.add(std::to_string(peers.size()) + " peers, rank " + std::to_string(peers[1].first.value())); },
                   [](const std::string&) {}});
  EXPECT_TRUE(told.wait_for("2 peers, rank 1"));
  first->reset();
}

TEST_F(ControlConnection, WhoeverIsToldToComeAgainDoesAndIsNotCountedAsDropped) {
  not_yet_ = 2;
  listen(1);
  const auto client = connect(0);
  ASSERT_TRUE(client.ok()) << client.error().message;
  EXPECT_EQ(server_->dropped(), 0U);
  EXPECT_EQ(not_yet_, -1);
}

TEST_F(ControlConnection, WhoeverIsToldToComeAgainUntilItsTimeIsOverSaysWhy) {
  not_yet_ = 1000;
  listen(1);
  const auto client = connect(0, 2s);
  ASSERT_FALSE(client.ok());
  EXPECT_NE(client.error().message.find("within 2.0 s: we are thinking"), std::string::npos) << client.error().message;
}

TEST(AgentIncarnation, OfOneThatStartsLaterIsHigher) {
  const auto start = std::chrono::sys_days{std::chrono::year{2026} / 12 / 1} + 3h;
  EXPECT_LT(incarnation_of_agent(start), incarnation_of_agent(start + 100ms));
  EXPECT_LT(incarnation_of_agent(start), incarnation_of_agent(start + 24h * 365 * 5));
}

TEST_F(ControlConnection, PassesAnOrderForTimelinesOnToEveryWorker) {
  listen(2);
  auto first = connect(0), second = connect(1);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_TRUE(heard_.wait_for("complete 2"));
  Heard told;
  for (auto* client : {&first, &second})
    (**client)->watch({[](const std::vector<Peer>&) {}, [](const std::string&) {},
                       [&told, client, &first](const std::string& folder) { told.add((client == &first ? "first: " : "second: ") + folder); }});
  server_->order_traces("/runs/a/trace/live-1");
  EXPECT_TRUE(told.wait_for("first: /runs/a/trace/live-1"));
  EXPECT_TRUE(told.wait_for("second: /runs/a/trace/live-1"));
  first->reset();
  second->reset();
}

TEST_F(ControlConnection, EndTellsEitherSide) {
  listen(1);
  auto client = connect(0);
  ASSERT_TRUE(client.ok()) << client.error().message;
  client->reset();
  EXPECT_TRUE(heard_.wait_for("gone 0"));
  auto other = connect(0);
  ASSERT_TRUE(other.ok()) << other.error().message;
  Heard told;
  (*other)->watch({[](const std::vector<Peer>&) {}, [&](const std::string&) { told.add("launcher gone"); }});
  server_.reset();
  EXPECT_TRUE(told.wait_for("launcher gone"));
}

TEST_F(ControlConnection, RefusesAWorkerOfAnotherJobAndSaysSo) {
  listen(1);
  client_secret_ = Secret::random();
  const auto client = connect(0, 2s);  // it tries until then
  ASSERT_FALSE(client.ok());
  EXPECT_NE(client.error().message.find("does not know this job's secret"), std::string::npos) << client.error().message;
}

TEST_F(ControlConnection, TellsAWorkerWhyItIsRefused) {
  listen(1);
  const auto client = connect(0, 10s, 13);
  ASSERT_FALSE(client.ok());
  EXPECT_NE(client.error().message.find("it refused: no luck"), std::string::npos) << client.error().message;
}

TEST_F(ControlConnection, DropsASilentPeerAndServesOthersMeanwhile) {
  listen(1, 200ms);
  const auto silent = connect_tcp("127.0.0.1", server_->port(), 5s);
  ASSERT_TRUE(silent.ok()) << silent.error().message;
  const auto client = connect(0);
  EXPECT_TRUE(client.ok());
  EXPECT_TRUE(closed_by_server(*silent));
}

TEST_F(ControlConnection, DropsNonsenseAndFramesThatAreTooLong) {
  listen(1);
  for (const std::string& nonsense : {std::string(64, '\xff'), std::string("GET / HTTP/1.1\r\n\r\n"), encode(ControlKind::challenge, std::string(4096, 'x')),
                                      encode(ControlKind::proof, "early")}) {
    const auto peer = connect_tcp("127.0.0.1", server_->port(), 5s);
    ASSERT_TRUE(peer.ok());
    (void)write_all(*peer, nonsense, 5s);
    EXPECT_TRUE(closed_by_server(*peer));
  }
  EXPECT_TRUE(connect(0).ok());
}

TEST_F(ControlConnection, DropsAPeerWhoseProofIsWrong) {
  listen(1);
  const auto peer = connect_tcp("127.0.0.1", server_->port(), 5s);
  ASSERT_TRUE(peer.ok());
  Hello hello;
  hello.first = Rank{7};
  ASSERT_TRUE(write_all(*peer, encode(ControlKind::challenge, std::string(sizeof(std::uint32_t) + sizeof(Digest), 'x')), 5s).ok());
  ASSERT_TRUE(write_all(*peer, encode(ControlKind::proof, std::string(sizeof(Digest), 'x') + write(hello)), 5s).ok());
  EXPECT_TRUE(closed_by_server(*peer));
  EXPECT_FALSE(heard_.has("hello 7"));
}

TEST_F(ControlConnection, NamesAPortInUse) {
  listen(1);
  ControlServer::Options options;
  options.port = server_->port();
  const auto second = ControlServer::listen(options, secret_, {}, *log_);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().message.find("port " + std::to_string(options.port) + " on 127.0.0.1 is in use"), std::string::npos) << second.error().message;
}

}  // namespace
}  // namespace troupe
