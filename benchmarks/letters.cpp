// benchmark letters: a million letters through CAF (write, post, dispatch, read) against as many plain CAF messages
#include <algorithm>
#include <atomic>
#include <caf/event_based_actor.hpp>
#include <caf/exit_reason.hpp>
#include <caf/send.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

#include "messages/write.hpp"
#include "src/runtime/actor_system.hpp"
#include "src/runtime/directory.hpp"
#include "src/runtime/letter_message.hpp"

namespace {

using namespace troupe;
constexpr std::uint64_t count = 1'000'000, burst = 1000;
constexpr ActorAddress here{Rank{0}, ActorKind::compute}, loader{Rank{0}, ActorKind::data_loader};

/// Shared by the actor and the benchmark's thread.
struct Tally {
  std::atomic<std::uint64_t> received{0};
  std::uint64_t sum = 0;
};

class Reader : public caf::event_based_actor {
 public:
  Reader(caf::actor_config& config, Tally& tally) : caf::event_based_actor(config), tally_(tally) {}
  caf::behavior make_behavior() override {
    return {[this](const Letter<schema::BatchReady>& letter) { take(letter.body().getTokens()); },
            [this](std::uint64_t tokens, std::uint64_t) { take(tokens); }};
  }

 private:
  void take(std::uint64_t tokens) {
    tally_.sum += tokens;
    tally_.received.fetch_add(1, std::memory_order_release);
  }
  Tally& tally_;
};

/// Nanoseconds a message, `send(i)` included, until the actor has read all. In bursts, so that the mailbox stays small.
template <class Send>
double measure(Tally& tally, Send&& send) {
  tally.received = 0;
  const auto start = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i < count; ++i) {
    send(i);
    if ((i + 1) % burst == 0) {
      while (tally.received.load(std::memory_order_acquire) + burst <= i) std::this_thread::yield();
    }
  }
  while (tally.received.load(std::memory_order_acquire) != count) std::this_thread::yield();
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / static_cast<double>(count);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main() {
  Tally tally;
  ActorSystem system;
  Directory directory;
  std::vector<double> letters, raw, writes;
  {
    const caf::actor reader = system.caf().spawn<Reader>(tally);
    directory.add(here, reader);
    for (int round = 0; round < 3; ++round) {
      const auto start = std::chrono::steady_clock::now();
      std::uint64_t bytes = 0;
      for (std::uint64_t i = 0; i < count; ++i) {
        bytes += write<schema::BatchReady>({.to = here, .from = loader, .where = {EpochId{1}, Step{i}, {}, {}}, .operation = {}},
                                           [&](auto body) { body.setTokens(i); })
                     ->bytes()
                     .size();
      }
      if (bytes == 0) return 1;
      writes.push_back(std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / static_cast<double>(count));
      letters.push_back(measure(tally, [&](std::uint64_t i) {
        directory.post(write<schema::BatchReady>({.to = here, .from = loader, .where = {EpochId{1}, Step{i}, {}, {}}, .operation = {}},
                                                 [&](auto body) { body.setTokens(i); }));
      }));
      raw.push_back(measure(tally, [&](std::uint64_t i) { caf::anon_send(reader, i, i); }));
    }
    directory.clear();
    caf::anon_send_exit(reader, caf::exit_reason::user_shutdown);
  }
  const double letter = median(letters), plain = median(raw), writing = median(writes);
  std::printf("%-46s %8.0f ns\n%-46s %8.0f ns\n%-46s %8.0f ns\n%-46s %8.2f\n", "letter: write, post, dispatch, read", letter, "  of it: write", writing,
              "plain CAF message of two integers", plain, "ratio", letter / plain);
  std::printf(
      "{\"benchmark\": \"letters\", \"count\": %llu, \"letter_ns\": %.0f, \"write_ns\": %.0f, \"caf_ns\": %.0f, \"ratio\": %.3f, \"bar_ns\": 1500, \"met\": "
      "%s}\n",
      static_cast<unsigned long long>(count), letter, writing, plain, letter / plain, letter <= 1500 ? "true" : "false");
  return 0;
}
