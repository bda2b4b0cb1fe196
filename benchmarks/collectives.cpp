// benchmark collectives: 16 MiB between two processes over shared memory and over UCX tcp, against LibTorch's Gloo
//
// Both sides run in the same processes, turn by turn, so that whatever else the machine does hits both. Printed are medians over the
// turns; the JSON line at the end is for machines. Usage: bench_collectives [turns] [MiB] [KiB a chunk over tcp] [chunks]
#define USE_C10D_GLOO
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "src/collectives/shared_memory_communicator.hpp"
#include "src/collectives/transport_communicator.hpp"

namespace {

using troupe::Communicator;
using Seconds = std::chrono::duration<double>;

struct Comparison {
  const char* name;
  std::function<void(Communicator&)> ours;
  std::vector<std::function<void()>> gloo;  ///< ways to say it; the fastest counts
};

c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo_group(int rank, int size, int port) {
  c10d::TCPStoreOptions store_options;
  store_options.port = static_cast<std::uint16_t>(port);
  store_options.isServer = rank == 0;
  store_options.numWorkers = size;
  const auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", store_options);
  auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::seconds(60));
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>("benchmark/", store), rank, size, options);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double timed(Communicator& group, const std::function<void()>& call) {
  troupe::Stream stream;
  double together = 0;
  group.all_reduce(stream, troupe::TensorView::contiguous(&together, troupe::DType::f64, {1}), troupe::Reduction::sum);
  const auto start = std::chrono::steady_clock::now();
  call();
  return Seconds(std::chrono::steady_clock::now() - start).count() * 1e3;
}

void report(const char* operation, const char* over, double ours, double gloo) {
  std::printf("%-15s over %-13s %8.3f ms   Gloo %8.3f ms   ratio %5.2f\n", operation, over, ours, gloo, gloo / ours);
  std::printf("{\"benchmark\":\"collectives\",\"operation\":\"%s\",\"over\":\"%s\",\"milliseconds\":%.4f,\"gloo_milliseconds\":%.4f,\"ratio\":%.3f}\n",
              operation, over, ours, gloo, gloo / ours);
}

void compare(Communicator& group, Communicator& tcp_group, const Comparison& what, int turns, bool print) {
  std::vector<double> ours, tcp;
  std::vector<std::vector<double>> gloo(what.gloo.size());
  for (int turn = -2; turn < turns; ++turn) {  // two turns to warm up
    const double own = timed(group, [&] { what.ours(group); }), over_tcp = timed(group, [&] { what.ours(tcp_group); });
    if (turn >= 0) {
      ours.push_back(own);
      tcp.push_back(over_tcp);
    }
    for (std::size_t way = 0; way < gloo.size(); ++way) {
      const double theirs = timed(group, what.gloo[way]);
      if (turn >= 0) gloo[way].push_back(theirs);
    }
  }
  if (!print) return;
  double fastest = median(gloo[0]);
  for (const auto& way : gloo) fastest = std::min(fastest, median(way));
  report(what.name, "shared memory", median(ours), fastest);
  report(what.name, "UCX tcp", median(tcp), fastest);
  std::fflush(stdout);
}

bool agree(const at::Tensor& ours, const at::Tensor& theirs) { return at::allclose(ours, theirs, 1e-6, 1e-6); }

/// The collectives of two processes over UCX's tcp: the transport, and what it needs to know.
struct TcpGroup {
  TcpGroup(Communicator& host, int rank, troupe::TransportCommunicatorOptions wanted, const troupe::Clock& clock) {
    troupe::TransportOptions options;
    options.self = {troupe::Rank{static_cast<std::uint32_t>(rank)}, troupe::Incarnation{0}};
    options.transports = "tcp";
    troupe::TransportHandlers none;
    none.letter = [](const std::shared_ptr<const troupe::Parcel>&) {};
    none.slot_for = [](troupe::schema::Envelope::Reader, std::uint64_t) { return troupe::Lease{}; };
    none.peer_lost = [](troupe::Rank, const std::string&) {};
    transport = troupe::make_ucx_transport(options, clock, mail.around(none));
    mail.use(*transport);
    std::vector<std::byte> addresses(2 * address_bytes);
    const std::string own = transport->address();
    std::memcpy(addresses.data() + static_cast<std::size_t>(rank) * address_bytes, own.data(), own.size());
    troupe::Stream stream;
    const troupe::GatherPiece piece{addresses.data(), address_bytes};
    host.all_gather(stream, {&piece, 1});
    const auto* theirs = reinterpret_cast<const char*>(addresses.data()) + static_cast<std::size_t>(1 - rank) * address_bytes;
    const auto connected = transport->connect(troupe::Rank{static_cast<std::uint32_t>(1 - rank)}, troupe::Incarnation{0}, std::string(theirs, own.size()));
    if (!connected) throw std::runtime_error(connected.error().message);
    wanted.processes = {troupe::Rank{0}, troupe::Rank{1}};
    wanted.rank = static_cast<std::uint32_t>(rank);
    group = troupe::make_transport_communicator(wanted, clock, mail);
  }
  static constexpr std::size_t address_bytes = 1024;
  troupe::CollectiveMail mail;
  std::unique_ptr<troupe::Transport> transport;
  std::unique_ptr<Communicator> group;
};

int run_rank(int rank, int size, int port, int turns, std::int64_t mib, const troupe::TransportCommunicatorOptions& wanted) {
  at::set_num_threads(1);
  const auto clock = troupe::make_system_clock();
  const auto group =
      troupe::make_shared_memory_communicator({.tag = wanted.tag, .rank = static_cast<std::uint32_t>(rank), .size = static_cast<std::uint32_t>(size)}, *clock);
  const TcpGroup tcp(*group, rank, wanted, *clock);
  const auto gloo = gloo_group(rank, size, port);
  troupe::Stream stream;
  const std::int64_t count = (mib << 20) / 4, part = count / size;
  at::manual_seed(static_cast<std::uint64_t>(rank));

  auto own_part = at::randn({part}), gathered = at::empty({count}), gloo_gathered = at::empty({count});
  gathered.narrow(0, rank * part, part).copy_(own_part);
  auto input = at::randn({count}), scattered = at::empty({part}), gloo_scattered = at::empty({part});
  auto summed = at::zeros({count}), gloo_summed = at::zeros({count});
  const auto bytes = [](const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.data_ptr()); };

  const std::vector<Comparison> comparisons{
      {"all_gather",
       [&](Communicator& over) {
         const troupe::GatherPiece piece{bytes(gathered), static_cast<std::size_t>(part) * 4};
         over.all_gather(stream, {&piece, 1});
       },
       {[&] { gloo->_allgather_base(gloo_gathered, own_part)->wait(); }}},
      {"reduce_scatter",
       [&](Communicator& over) {
         const troupe::ReducePiece piece{input.data_ptr<float>(), scattered.data_ptr<float>(), static_cast<std::size_t>(part)};
         over.reduce_scatter(stream, {&piece, 1});
       },
       {[&] { gloo->_reduce_scatter_base(gloo_scattered, input)->wait(); },
        [&] {
          std::vector<at::Tensor> outputs{gloo_scattered};
          std::vector<std::vector<at::Tensor>> inputs{input.chunk(size)};
          gloo->reduce_scatter(outputs, inputs)->wait();
        }}},
      {"all_reduce",
       [&](Communicator& over) {
         over.all_reduce(stream, troupe::TensorView::contiguous(summed.data_ptr(), troupe::DType::f32, {count}), troupe::Reduction::sum);
       },
       {[&] {
         std::vector<at::Tensor> values{gloo_summed};
         gloo->allreduce(values)->wait();
       }}}};
  for (const auto& comparison : comparisons) compare(*group, *tcp.group, comparison, turns, rank == 0);

  bool same = true;
  for (Communicator* const over : {group.get(), tcp.group.get()}) {
    summed.copy_(input);
    gloo_summed.copy_(input);
    for (const auto& comparison : comparisons) {
      comparison.ours(*over);
      comparison.gloo.back()();
    }
    same = same && agree(gathered, gloo_gathered) && agree(scattered, gloo_scattered) && agree(summed, gloo_summed);
  }
  if (!same) std::fprintf(stderr, "rank %d: Gloo and we do not agree\n", rank);
  double together = 0;  // nobody leaves while the other still works
  group->all_reduce(stream, troupe::TensorView::contiguous(&together, troupe::DType::f64, {1}), troupe::Reduction::sum);
  return same ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const int turns = argc > 1 ? std::atoi(argv[1]) : 30;
  const std::int64_t mib = argc > 2 ? std::atoll(argv[2]) : 16;
  const int size = 2, port = 20000 + getpid() % 10000;
  troupe::TransportCommunicatorOptions wanted;
  wanted.tag = "bench-" + std::to_string(getpid());
  if (argc > 3) wanted.chunk_bytes = std::strtoull(argv[3], nullptr, 10) << 10;
  if (argc > 4) wanted.chunks = static_cast<std::uint32_t>(std::strtoul(argv[4], nullptr, 10));
  const pid_t child = fork();
  const int result = run_rank(child == 0 ? 1 : 0, size, port, std::max(turns, 1), std::max<std::int64_t>(mib, 1), wanted);
  if (child == 0) _exit(result);
  int status = 0;
  waitpid(child, &status, 0);
  return result != 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0 ? 1 : 0;
}
