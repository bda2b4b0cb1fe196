#include "tests/collectives/members.hpp"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <latch>
#include <stdexcept>
#include <thread>

#include "src/collectives/transport_communicator.hpp"
#include "src/transport/loopback.hpp"

namespace troupe::testing {
namespace {

Member run_member(const SharedMemoryOptions& options, const Body& body) {
  const auto clock = make_system_clock();
  Member result;
  try {
    const auto communicator = make_shared_memory_communicator(options, *clock);
    result.bytes = body(*communicator);
  } catch (const std::exception& problem) {
    result.error = problem.what();
  }
  return result;
}

/// What the members over a transport share while they meet.
struct Crossing {
  explicit Crossing(std::uint32_t size) : addresses(size), listening(size), finished(size) {}
  std::vector<std::string> addresses;
  std::latch listening, finished;
  std::unique_ptr<Clock> clock = make_system_clock();
  LoopbackNetwork network{*clock};
};

Member run_over_transport(Kind kind, const SharedMemoryOptions& options, const Body& body, Crossing& crossing) {
  const auto clock = make_system_clock();
  CollectiveMail mail;
  TransportHandlers handlers;
  handlers.letter = [](const std::shared_ptr<const Parcel>&) {};
  handlers.slot_for = [](schema::Envelope::Reader, std::uint64_t) { return Lease{}; };
  handlers.peer_lost = [](Rank, const std::string&) {};
  TransportOptions transport_options;
  transport_options.session.job = 42;
  transport_options.self = {Rank{options.rank}, Incarnation{0}};
  const auto transport = kind == Kind::ucx ? make_ucx_transport(transport_options, *clock, mail.around(handlers)) : crossing.network.join(transport_options, mail.around(handlers));
  mail.use(*transport);
  crossing.addresses[options.rank] = transport->address();
  crossing.listening.arrive_and_wait();
  TransportCommunicatorOptions wanted;
  wanted.tag = options.tag;
  wanted.rank = options.rank;
  wanted.timeout = options.timeout;
  wanted.chunk_bytes = options.chunk_bytes;
  wanted.chunks = options.chunks;
  Member result;
  for (std::uint32_t peer = 0; peer < options.size; ++peer) {
    wanted.processes.emplace_back(peer);
    if (peer == options.rank) continue;
    if (const auto connected = transport->connect(Rank{peer}, Incarnation{0}, crossing.addresses[peer]); !connected) result.error = connected.error().message;
  }
  try {
    const auto communicator = make_transport_communicator(wanted, *clock, mail);
    result.bytes = body(*communicator);
    crossing.finished.arrive_and_wait();
  } catch (const std::exception& problem) {
    result.error = problem.what();
    crossing.finished.arrive_and_wait();
  }
  return result;
}

void write_all(int descriptor, const void* data, std::size_t bytes) {
  for (const char* from = static_cast<const char*>(data); bytes > 0;) {
    const ssize_t n = write(descriptor, from, bytes);
    if (n <= 0) _exit(3);
    from += n;
    bytes -= static_cast<std::size_t>(n);
  }
}

std::vector<std::byte> read_all(int descriptor) {
  std::vector<std::byte> all;
  std::byte buffer[65536];
  for (ssize_t n; (n = read(descriptor, buffer, sizeof buffer)) > 0;) all.insert(all.end(), buffer, buffer + n);
  return all;
}

struct Child {
  pid_t process;
  int result;
};

Child spawn(const SharedMemoryOptions& options, const Body& body) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("pipe");
  std::fflush(nullptr);
  const pid_t process = fork();
  if (process < 0) throw std::runtime_error("fork");
  if (process == 0) {
    close(ends[0]);
    const Member result = run_member(options, body);
    const char failed = result.error.empty() ? 0 : 1;
    write_all(ends[1], &failed, 1);
    if (failed) write_all(ends[1], result.error.data(), result.error.size());
    else write_all(ends[1], result.bytes.data(), result.bytes.size());
    _exit(0);
  }
  close(ends[1]);
  return {process, ends[0]};
}

Member collect(const Child& child) {
  Member result;
  const auto all = read_all(child.result);
  close(child.result);
  int status = 0;
  waitpid(child.process, &status, 0);
  result.died = !WIFEXITED(status) || WEXITSTATUS(status) != 0 || all.empty();
  if (result.died) return result;
  if (all[0] == std::byte{0}) result.bytes.assign(all.begin() + 1, all.end());
  else result.error.assign(reinterpret_cast<const char*>(all.data()) + 1, all.size() - 1);
  return result;
}

}  // namespace

std::string fresh_tag() {
  static std::atomic<int> next{0};
  return "test-" + std::to_string(getpid()) + "-" + std::to_string(next++);
}

std::vector<Member> run(Kind kind, std::uint32_t size, const Body& body, const Setting& setting) {
  SharedMemoryRegistry registry;
  SharedMemoryOptions common;
  common.tag = setting.tag.empty() ? fresh_tag() : setting.tag;
  common.size = size;
  common.timeout = setting.timeout;
  common.chunk_bytes = setting.chunk_bytes;
  common.chunks = setting.chunks;
  common.registry = kind == Kind::threads ? &registry : nullptr;
  std::vector<Member> results(size);
  std::optional<Crossing> crossing;  // its clock has a thread, which a fork must not meet
  if (kind == Kind::loopback || kind == Kind::ucx) crossing.emplace(size);
  std::vector<std::jthread> threads;
  std::vector<Child> children;
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    SharedMemoryOptions options = common;
    options.rank = rank;
    if (setting.change) setting.change(options);
    if (kind == Kind::loopback || kind == Kind::ucx)
      threads.emplace_back([&results, &body, &crossing, options, kind, rank] { results[rank] = run_over_transport(kind, options, body, *crossing); });
    else if (kind == Kind::threads) threads.emplace_back([&results, &body, options, rank] { results[rank] = run_member(options, body); });
    else children.push_back(spawn(options, body));
  }
  threads.clear();
  for (std::uint32_t rank = 0; rank < children.size(); ++rank) results[rank] = collect(children[rank]);
  return results;
}

void wait_until_asleep(int thread_id) {
  for (char state = '?'; state != 'S'; std::this_thread::yield()) {
    std::ifstream stat("/proc/self/task/" + std::to_string(thread_id) + "/stat");
    std::string line;
    std::getline(stat, line);
    const auto end = line.rfind(')');
    if (end != std::string::npos && end + 2 < line.size()) state = line[end + 2];
  }
}

}  // namespace troupe::testing
