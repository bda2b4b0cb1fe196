// benchmark collectives: all-gather, reduce-scatter and all-reduce of 16 MiB between two processes of this host, against LibTorch's Gloo
//
// Both sides run in the same processes, turn by turn, so that whatever else the machine does hits both. Printed are medians over the
// turns; the JSON line at the end is for machines. Usage: bench_collectives [turns] [MiB]
#define USE_C10D_GLOO
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <sys/wait.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "src/collectives/shared_memory_communicator.hpp"

namespace {

using troupe::Communicator;
using Seconds = std::chrono::duration<double>;

struct Comparison {
  const char* name;
  std::function<void()> ours;
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

void compare(Communicator& group, const Comparison& what, int turns, bool print) {
  std::vector<double> ours;
  std::vector<std::vector<double>> gloo(what.gloo.size());
  for (int turn = -2; turn < turns; ++turn) {  // two turns to warm up
    const double own = timed(group, what.ours);
    if (turn >= 0) ours.push_back(own);
    for (std::size_t way = 0; way < gloo.size(); ++way) {
      const double theirs = timed(group, what.gloo[way]);
      if (turn >= 0) gloo[way].push_back(theirs);
    }
  }
  if (!print) return;
  double fastest = median(gloo[0]);
  for (const auto& way : gloo) fastest = std::min(fastest, median(way));
  std::printf("%-15s %8.3f ms   Gloo %8.3f ms   ratio %5.2f\n", what.name, median(ours), fastest, fastest / median(ours));
  std::printf("{\"benchmark\":\"collectives\",\"operation\":\"%s\",\"milliseconds\":%.4f,\"gloo_milliseconds\":%.4f,\"ratio\":%.3f}\n", what.name, median(ours), fastest,
              fastest / median(ours));
  std::fflush(stdout);
}

bool agree(const at::Tensor& ours, const at::Tensor& theirs) { return at::allclose(ours, theirs, 1e-6, 1e-6); }

int run_rank(int rank, int size, int port, int turns, std::int64_t mib, const std::string& tag) {
  at::set_num_threads(1);
  const auto clock = troupe::make_system_clock();
  const auto group = troupe::make_shared_memory_communicator({.tag = tag, .rank = static_cast<std::uint32_t>(rank), .size = static_cast<std::uint32_t>(size)}, *clock);
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
       [&] {
         const troupe::GatherPiece piece{bytes(gathered), static_cast<std::size_t>(part) * 4};
         group->all_gather(stream, {&piece, 1});
       },
       {[&] { gloo->_allgather_base(gloo_gathered, own_part)->wait(); }}},
      {"reduce_scatter",
       [&] {
         const troupe::ReducePiece piece{input.data_ptr<float>(), scattered.data_ptr<float>(), static_cast<std::size_t>(part)};
         group->reduce_scatter(stream, {&piece, 1});
       },
       {[&] { gloo->_reduce_scatter_base(gloo_scattered, input)->wait(); },
        [&] {
          std::vector<at::Tensor> outputs{gloo_scattered};
          std::vector<std::vector<at::Tensor>> inputs{input.chunk(size)};
          gloo->reduce_scatter(outputs, inputs)->wait();
        }}},
      {"all_reduce",
       [&] { group->all_reduce(stream, troupe::TensorView::contiguous(summed.data_ptr(), troupe::DType::f32, {count}), troupe::Reduction::sum); },
       {[&] {
         std::vector<at::Tensor> values{gloo_summed};
         gloo->allreduce(values)->wait();
       }}}};
  for (const auto& comparison : comparisons) compare(*group, comparison, turns, rank == 0);

  comparisons[0].ours();
  comparisons[1].ours();
  summed.copy_(input);
  gloo_summed.copy_(input);
  comparisons[2].ours();
  for (const auto& comparison : comparisons) comparison.gloo.back()();
  const bool same = agree(gathered, gloo_gathered) && agree(scattered, gloo_scattered) && agree(summed, gloo_summed);
  if (!same) std::fprintf(stderr, "rank %d: Gloo and we do not agree\n", rank);
  return same ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const int turns = argc > 1 ? std::atoi(argv[1]) : 30;
  const std::int64_t mib = argc > 2 ? std::atoll(argv[2]) : 16;
  const int size = 2, port = 20000 + getpid() % 10000;
  const std::string tag = "bench-" + std::to_string(getpid());
  const pid_t child = fork();
  const int result = run_rank(child == 0 ? 1 : 0, size, port, std::max(turns, 1), std::max<std::int64_t>(mib, 1), tag);
  if (child == 0) _exit(result);
  int status = 0;
  waitpid(child, &status, 0);
  return result != 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0 ? 1 : 0;
}
