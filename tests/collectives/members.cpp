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

/// What the members over a transport share while they meet and part.
struct Crossing {
  explicit Crossing(std::uint32_t size) : addresses(size), listening(size), finished(size) {}
  std::vector<std::string> addresses;
  std::latch listening, finished;
  std::unique_ptr<Clock> clock = make_system_clock();
  LoopbackNetwork network{*clock};
};

/// A member's transport, joined to those of the others.
struct Station {
  using Join = std::function<std::unique_ptr<Transport>(const TransportOptions&, TransportHandlers)>;
  Station(std::uint32_t rank, const Join& join) {
    TransportHandlers handlers;
    handlers.letter = [](const std::shared_ptr<const Parcel>&) {};
    handlers.slot_for = [](schema::Envelope::Reader, std::uint64_t) { return Lease{}; };
    handlers.peer_lost = [](Rank, const std::string&) {};
    TransportOptions options;
    options.session.job = 42;
    options.self = {Rank{rank}, Incarnation{0}};
    transport = join(options, mail.around(handlers));
    mail.use(*transport);
  }
  void connect(std::uint32_t rank, const std::vector<std::string>& addresses) const {
    for (std::uint32_t peer = 0; peer < addresses.size(); ++peer) {
      if (peer == rank) continue;
      if (const auto connected = transport->connect(Rank{peer}, Incarnation{0}, addresses[peer]); !connected)
        throw std::runtime_error(connected.error().message);
    }
  }
  [[nodiscard]] std::unique_ptr<Communicator> communicator(const SharedMemoryOptions& options, const Clock& clock) {
    TransportCommunicatorOptions wanted;
    wanted.tag = options.tag;
    wanted.rank = options.rank;
    wanted.timeout = options.timeout;
    wanted.chunk_bytes = options.chunk_bytes;
    wanted.chunks = options.chunks;
    for (std::uint32_t rank = 0; rank < options.size; ++rank) wanted.processes.emplace_back(rank);
    return make_transport_communicator(wanted, clock, mail);
  }
  CollectiveMail mail;
  std::unique_ptr<Transport> transport;
};

Member run_over_transport(Kind kind, const SharedMemoryOptions& options, const Body& body, Crossing& crossing) {
  const auto clock = make_system_clock();
  Station station(options.rank, [&](const TransportOptions& wanted, TransportHandlers handlers) {
    return kind == Kind::ucx ? make_ucx_transport(wanted, *clock, std::move(handlers)) : crossing.network.join(wanted, std::move(handlers));
  });
  crossing.addresses[options.rank] = station.transport->address();
  crossing.listening.arrive_and_wait();
  Member result;
  try {
    station.connect(options.rank, crossing.addresses);
    result.bytes = body(*station.communicator(options, *clock));
  } catch (const std::exception& problem) {
    result.error = problem.what();
  }
  crossing.finished.arrive_and_wait();  // a transport that goes takes its links with it
  return result;
}

/// A process that learns the others' addresses over shared memory, and then talks to them over UCX alone.
Member run_ucx_process(const SharedMemoryOptions& options, const Body& body) {
  const auto clock = make_system_clock();
  Member result;
  try {
    SharedMemoryOptions meeting = options;
    meeting.tag += "-meeting";
    const auto host = make_shared_memory_communicator(meeting, *clock);
    Station station(options.rank,
                    [&](const TransportOptions& wanted, TransportHandlers handlers) { return make_ucx_transport(wanted, *clock, std::move(handlers)); });
    constexpr std::size_t longest = 1024;
    std::string all(longest * options.size, '\0'), own = station.transport->address();
    all.replace(options.rank * longest, own.size(), own);
    const GatherPiece piece{reinterpret_cast<std::byte*>(all.data()), longest};
    Stream stream;
    host->all_gather(stream, {&piece, 1});
    std::vector<std::string> addresses;
    for (std::uint32_t rank = 0; rank < options.size; ++rank) addresses.push_back(all.substr(rank * longest, own.size()));
    station.connect(options.rank, addresses);
    result.bytes = body(*station.communicator(options, *clock));
    host->all_gather(stream, {&piece, 1});  // nobody leaves while another still works
  } catch (const std::exception& problem) {
    result.error = problem.what();
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

Child spawn(Kind kind, const SharedMemoryOptions& options, const Body& body) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("pipe");
  std::fflush(nullptr);
  const pid_t process = fork();
  if (process < 0) throw std::runtime_error("fork");
  if (process == 0) {
    close(ends[0]);
    const Member result = kind == Kind::processes ? run_member(options, body) : run_ucx_process(options, body);
    const char failed = result.error.empty() ? 0 : 1;
    write_all(ends[1], &failed, 1);
    if (failed)
      write_all(ends[1], result.error.data(), result.error.size());
    else
      write_all(ends[1], result.bytes.data(), result.bytes.size());
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
  if (all[0] == std::byte{0})
    result.bytes.assign(all.begin() + 1, all.end());
  else
    result.error.assign(reinterpret_cast<const char*>(all.data()) + 1, all.size() - 1);
  return result;
}

}  // namespace

std::vector<std::byte> train_a_little(Communicator& group) {
  Stream stream;
  std::vector<float> weights = awkward_values<float>(99, 4001);
  for (int step = 0; step < 20; ++step) {
    const std::size_t count = 4001 / group.size() + 1;
    auto gradient = awkward_values<float>(group.rank() + static_cast<std::uint32_t>(step) * 10, count * group.size());
    std::vector<float> shard(count), all(count * group.size());
    const ReducePiece reduce{gradient.data(), shard.data(), count};
    group.reduce_scatter(stream, {&reduce, 1});
    std::copy(shard.begin(), shard.end(), all.begin() + static_cast<std::ptrdiff_t>(group.rank() * count));
    const GatherPiece gather{reinterpret_cast<std::byte*>(all.data()), count * sizeof(float)};
    group.all_gather(stream, {&gather, 1});
    group.all_reduce(stream, TensorView::contiguous(gradient.data(), DType::f32, {static_cast<std::int64_t>(gradient.size())}), Reduction::sum);
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = weights[i] * 0.5F + all[i] + gradient[i];
  }
  return bytes_of(weights);
}

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
    else if (kind == Kind::threads)
      threads.emplace_back([&results, &body, options, rank] { results[rank] = run_member(options, body); });
    else
      children.push_back(spawn(kind, options, body));
  }
  // All at once: a killed process that nobody waits for stays a zombie, and UCX takes it for alive.
  for (std::uint32_t rank = 0; rank < children.size(); ++rank) threads.emplace_back([&results, &children, rank] { results[rank] = collect(children[rank]); });
  threads.clear();
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
