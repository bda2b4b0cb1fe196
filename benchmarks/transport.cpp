// benchmark transport: 16 MiB payloads from process to process, slots and hashes included, against ucx_perftest over the same transports
//
// Both sides keep several payloads under way and receive one after the other into one buffer, as ucx_perftest does; ours is also shown with
// four buffers in turn, which are more than the processor's cache holds here. ucx_perftest hashes nothing and looks at nothing that it receives.
// Usage: bench_transport [transports …], each as UCX_TLS has it
#include "src/transport/transport.hpp"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "messages/write.hpp"

namespace {

using namespace troupe;
constexpr std::size_t payload_bytes = std::size_t{16} << 20;
constexpr int payloads = 60, warm_up = 6, window = 4;  ///< letters under way
constexpr Rank sender{0}, receiver{1};

TransportOptions options(Rank self, const std::string& transports) {
  TransportOptions o;
  o.self = {self, Incarnation{0}};
  o.transports = transports;
  return o;
}

void write_all(int fd, const std::string& text) {
  const auto size = static_cast<std::uint32_t>(text.size());
  if (write(fd, &size, sizeof size) != sizeof size || write(fd, text.data(), size) != static_cast<ssize_t>(size)) std::_Exit(3);
}

std::string read_all(int fd) {
  std::uint32_t size = 0;
  if (read(fd, &size, sizeof size) != sizeof size) std::_Exit(3);
  std::string text(size, 0);
  for (std::size_t done = 0; done < size;) {
    const ssize_t n = read(fd, text.data() + done, size - done);
    if (n <= 0) std::_Exit(3);
    done += static_cast<std::size_t>(n);
  }
  return text;
}

/// Where a payload starts, as in an arena; ucx_perftest's buffers start at a page, too.
struct alignas(4096) Page {
  std::byte bytes[4096];
};
using Memory = std::vector<Page>;
Memory payload_memory() { return Memory(payload_bytes / sizeof(Page)); }
std::span<std::byte> bytes_of(Memory& memory) { return {memory.front().bytes, payload_bytes}; }

/// The receiver's buffers, used in turn. The transport's thread alone takes them, and gives them back when it has delivered.
class Slots {
 public:
  explicit Slots(std::size_t count) : memory_(count, payload_memory()), used_(count, false) {}
  Lease take(const std::function<void()>& freed) {
    if (used_[next_]) return {};
    const std::size_t slot = std::exchange(next_, (next_ + 1) % used_.size());
    used_[slot] = true;
    return {SlotIndex{static_cast<std::uint32_t>(slot)}, bytes_of(memory_[slot]), [this, slot, freed] {
              used_[slot] = false;
              freed();
            }};
  }

 private:
  std::vector<Memory> memory_;
  std::vector<bool> used_;
  std::size_t next_ = 0;
};

/// The receiving process: takes payloads into so many slots until its input ends.
[[noreturn]] void receive(const std::string& transports, std::size_t slot_count, int in, int out) {
  const auto clock = make_system_clock();
  std::unique_ptr<Transport> transport;
  Slots slots(slot_count);
  TransportHandlers handlers;
  handlers.letter = [out, left = warm_up + payloads](const std::shared_ptr<const Parcel>&) mutable {
    if (--left == 0) write_all(out, "all arrived intact");
  };
  handlers.slot_for = [&](schema::Envelope::Reader, std::uint64_t) { return slots.take([&] { transport->slot_available(); }); };
  handlers.peer_lost = [](Rank, const std::string&) {};
  transport = make_ucx_transport(options(receiver, transports), *clock, std::move(handlers));
  write_all(out, transport->address());
  if (!transport->connect(sender, Incarnation{0}, read_all(in)).ok()) std::_Exit(4);
  char byte = 0;
  while (read(in, &byte, 1) > 0) {}
  std::_Exit(0);
}

/// GB/s of `payloads` payloads, `window` at a time, from the first send until the receiver has checked the last one's hash; 0 if it never says so.
double measure_troupe(const std::string& transports, std::size_t slots) {
  int down[2], up[2];
  if (pipe(down) != 0 || pipe(up) != 0) std::_Exit(2);
  const pid_t child = fork();  // before this process has made any thread for this run
  if (child == 0) {
    close(down[1]);
    close(up[0]);
    receive(transports, slots, down[0], up[1]);
  }
  close(down[0]);
  close(up[1]);
  double rate = 0;
  {
    const auto clock = make_system_clock();
    TransportHandlers handlers;
    handlers.letter = [](const std::shared_ptr<const Parcel>&) {};
    handlers.slot_for = [](schema::Envelope::Reader, std::uint64_t) { return Lease{}; };
    handlers.peer_lost = [](Rank, const std::string& cause) { std::fprintf(stderr, "receiver lost: %s\n", cause.c_str()); };
    const auto transport = make_ucx_transport(options(sender, transports), *clock, std::move(handlers));
    write_all(down[1], transport->address());
    if (!transport->connect(receiver, Incarnation{0}, read_all(up[0])).ok()) std::_Exit(4);
    Memory memory = payload_memory();
    std::mutex mutex;
    std::condition_variable changed;
    int pending = 0;
    std::chrono::steady_clock::time_point start;
    for (int i = -warm_up; i < payloads; ++i) {
      std::unique_lock lock(mutex);
      if (i == 0) {
        changed.wait(lock, [&] { return pending == 0; });
        start = std::chrono::steady_clock::now();
      }
      changed.wait(lock, [&] { return pending < window; });
      ++pending;
      lock.unlock();
      auto letter = write<schema::BatchReady>(
          {.to = {receiver, ActorKind::compute}, .from = {sender, ActorKind::data_loader}, .where = {}, .operation = {}}, [](auto) {},
          Lease{SlotIndex{0}, bytes_of(memory), [] {}});
      transport->send(receiver, std::move(letter), [&](const Result<void>& result) {
        if (!result.ok()) std::fprintf(stderr, "%s\n", result.error().message.c_str());
        const std::lock_guard guard(mutex);
        --pending;
        changed.notify_all();
      });
    }
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return pending == 0; });
    pollfd answer{up[0], POLLIN, 0};
    const bool intact = poll(&answer, 1, 10'000) == 1 && !read_all(up[0]).empty();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (!intact) std::fprintf(stderr, "not all payloads arrived intact over %s\n", transports.c_str());
    if (intact) rate = static_cast<double>(payload_bytes) * payloads / seconds.count() / 1e9;
  }
  close(down[1]);
  close(up[0]);
  waitpid(child, nullptr, 0);
  return rate;
}

std::string run(const std::string& command) {
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return text;
  char chunk[512];
  while (fgets(chunk, sizeof chunk, pipe) != nullptr) text += chunk;
  pclose(pipe);
  return text;
}

/// GB/s that ucx_perftest's active messages reach; its overall average. `flags`: "-e" for endpoints that notice failures, as ours do.
double measure_perftest(const std::string& transports, const std::string& flags) {
  static int port = 14000 + getpid() % 2000;
  ++port;
  // The wheel's program wants its own copy of libgomp, which the set-up does not unpack; the system's serves as well.
  const auto folder = std::filesystem::temp_directory_path() / ("troupe_perftest_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const auto link = folder / "libgomp-855c301a.so.1.0.0";
  if (!std::filesystem::exists(link)) std::filesystem::create_symlink(TROUPE_LIBGOMP, link);
  const std::string program = std::string("env UCX_TLS=") + transports + " UCX_NET_DEVICES=lo UCX_MM_ERROR_HANDLING=y LD_LIBRARY_PATH=" + TROUPE_UCX_ROOT +
                              "/lib:" + folder.string() + " " + TROUPE_UCX_ROOT + "/bin/ucx_perftest -p " + std::to_string(port) + " " + flags;
  const std::string client =
      program + " 127.0.0.1 -t ucp_am_bw -s " + std::to_string(payload_bytes) + " -n " + std::to_string(payloads) + " -w " + std::to_string(warm_up) + " -f";
  const std::string text = run("(" + program + " >/dev/null 2>&1 &) ; for i in 1 2 3 4 5 6 7 8 9 10; do " + client + " 2>/dev/null && break; sleep 0.3; done");
  std::filesystem::remove_all(folder);
  // The line of numbers: iterations, percentile, average and overall latency, average and overall MB/s, ...
  double rate = 0;
  for (std::size_t start = 0; start < text.size(); start = text.find('\n', start) == std::string::npos ? text.size() : text.find('\n', start) + 1) {
    double value[6] = {};
    if (std::sscanf(text.c_str() + start, "%lf %lf %lf %lf %lf %lf", &value[0], &value[1], &value[2], &value[3], &value[4], &value[5]) == 6)
      rate = value[5] * 1048576 / 1e9;
  }
  if (rate == 0) std::fprintf(stderr, "ucx_perftest gave no result: %s\n", client.c_str());
  return rate;
}

/// Nanoseconds that a line of memory takes from one processor to another and back, halved: tens where the two share a cache, hundreds where not; 0 with one.
double handover() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2) return 0;
  constexpr int times = 20'000;
  alignas(64) std::atomic<int> line{0};
  std::thread other([&] {
    for (int i = 0; i < times; ++i) {
      while (line.load(std::memory_order_acquire) != 2 * i + 1) {}
      line.store(2 * i + 2, std::memory_order_release);
    }
  });
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) {
    line.store(2 * i + 1, std::memory_order_release);
    while (line.load(std::memory_order_acquire) != 2 * i + 2) {}
  }
  const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
  other.join();
  return time.count() / (2 * times);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  std::vector<std::string> chosen(argv + 1, argv + argc);
  if (chosen.empty()) chosen = {"sysv,cma,tcp", "tcp"};
  std::printf("%-16s %14s %14s %22s %22s %8s\n", "16 MiB payloads", "Troupe GB/s", "four slots", "ucx_perftest -e GB/s", "ucx_perftest GB/s", "ratio");
  for (const std::string& transports : chosen) {
    std::vector<double> ours, spread, theirs, blind, lines;
    for (int round = 0; round < 5; ++round) {  // in turn, so that a busy moment hits all
      lines.push_back(handover());
      ours.push_back(measure_troupe(transports, 1));
      theirs.push_back(measure_perftest(transports, "-e"));
      spread.push_back(measure_troupe(transports, window));
      blind.push_back(measure_perftest(transports, ""));
    }
    const double a = median(ours), b = median(theirs), c = median(blind), d = median(spread);
    std::printf("%-16s %14.2f %14.2f %22.2f %22.2f %8.2f\n", transports.c_str(), a, d, b, c, b > 0 ? a / b : 0);
    std::printf("  a line from one processor to the other: %.0f ns\n", median(lines));
    std::printf(
        "{\"benchmark\": \"transport\", \"transports\": \"%s\", \"payload_bytes\": %zu, \"troupe_gbs\": %.3f, \"troupe_four_slots_gbs\": %.3f, "
        "\"perftest_gbs\": %.3f, \"perftest_without_error_handling_gbs\": %.3f, \"ratio\": %.3f, \"bar\": 0.9, \"met\": %s}\n",
        transports.c_str(), payload_bytes, a, d, b, c, b > 0 ? a / b : 0, b > 0 && a / b >= 0.9 ? "true" : "false");
  }
  return 0;
}
