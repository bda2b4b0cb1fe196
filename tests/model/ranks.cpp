#include "tests/model/ranks.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <random>
#include <thread>

#include "src/collectives/shared_memory_communicator.hpp"

namespace troupe::test {

FillRow markov_rows(std::int32_t vocabulary, std::uint64_t seed) {
  return [=](Step step, std::uint64_t row, std::span<std::int32_t> tokens, std::span<std::int32_t> labels) {
    std::mt19937_64 random(seed + step.value() * 1000003 + row);
    auto token = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocabulary));
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = token;
      token = random() % 4 == 0 ? static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocabulary)) : (token * 5 + 3) % vocabulary;
      labels[i] = token;
    }
  };
}

PlainStep::Load deal(const TrainingOptions& options, FillRow fill, std::uint64_t rows) {
  return [options, rows, fill = std::move(fill)](Step step, Micro micro, std::span<std::byte> batch) {
    const std::span all(reinterpret_cast<std::int32_t*>(batch.data()), 2 * options.batch.tokens());
    for (std::uint32_t i = 0; i < options.batch.rows; ++i) {
      const std::uint64_t row = (std::uint64_t{micro.value()} * options.data_ranks() + options.data_rank()) * options.batch.rows + i;
      const std::size_t at = std::size_t{i} * options.batch.seq_len;
      const auto tokens = all.subspan(at, options.batch.seq_len), labels = all.subspan(options.batch.tokens() + at, options.batch.seq_len);
      if (row < rows) {
        fill(step, row, tokens, labels);
      } else {
        std::ranges::fill(tokens, 0);
        std::ranges::fill(labels, -100);
      }
    }
  };
}

ModelDescription llama3(std::string_view flavour) { return describe_llama3(llama3_flavour(flavour).value()); }

void on_ranks(const ModelDescription& model, TrainingOptions options, const std::function<void(RankContext&)>& body) {
  static std::atomic<int> worlds{0};
  const std::string tag = "model-test-" + std::to_string(worlds++);
  SharedMemoryRegistry registry;
  const std::unique_ptr<Clock> clock = make_system_clock();
  std::mutex mutex;
  std::exception_ptr failure;
  const auto join = [&](const std::string& name, std::uint32_t rank, std::uint32_t size) {
    SharedMemoryOptions shared;
    shared.tag = tag + name;
    shared.rank = rank;
    shared.size = size;
    shared.registry = &registry;
    return make_shared_memory_communicator(shared, *clock);
  };
  const auto run = [&](std::uint32_t rank) {
    std::vector<std::unique_ptr<Communicator>> communicators;
    try {
      TrainingOptions mine = options;
      mine.rank = rank % options.world;
      mine.replica = rank / options.world;
      communicators.push_back(join("-shard-" + std::to_string(mine.replica), mine.rank, options.world));
      communicators.push_back(join("-world", rank, options.data_ranks()));
      if (options.replicas > 1) communicators.push_back(join("-replicate-" + std::to_string(mine.rank), mine.replica, options.replicas));
      const std::unique_ptr<Device> device = make_cpu_device(1);
      HaltWord halt{0};
      TrainingModel training(model, mine, *device, &halt);
      training.initialise(1);
      RankContext context{rank, *device, *communicators[0], *communicators[1], options.replicas > 1 ? communicators[2].get() : nullptr, training, halt};
      body(context);
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      for (const auto& communicator : communicators) communicator->abort(error.what());
    }
  };
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < options.data_ranks(); ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

std::vector<StepNumbers> train(const ModelDescription& model, const TrainingOptions& options, const FillRow& fill, std::uint64_t steps, double learning_rate,
                               std::uint64_t rows) {
  std::vector<StepNumbers> numbers;
  on_ranks(model, options, [&](RankContext& rank) {
    PlainStep plain(rank.model, rank.device, {rank.communicator, rank.world, rank.dp_replicate}, deal(rank.model.options(), fill, rows));
    for (Step step{1}; step.value() <= steps; ++step) {
      const StepNumbers found = plain.run(EpochId{1}, step, learning_rate);
      if (rank.rank == 0) numbers.push_back(found);
    }
  });
  return numbers;
}

std::vector<std::byte> state_bytes(TrainingModel& model) {
  std::vector<std::byte> bytes;
  for (const StateTensor& tensor : model.state()) bytes.insert(bytes.end(), tensor.view.data, tensor.view.data + tensor.view.bytes());
  return bytes;
}

}  // namespace troupe::test
