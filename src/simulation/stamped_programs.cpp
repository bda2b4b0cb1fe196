#include "src/simulation/stamped_programs.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

namespace troupe {
namespace {

constexpr std::uint64_t weights_mark = 0x7765696768747321U, batch_mark = 0x6261746368657321U, snapshot_mark = 0x736e617073686f74U;
constexpr std::size_t gradient_count = 4;  // floats of each rank's part: step, micro, unit, rank + 1

struct WeightsStamp {
  std::uint64_t mark, version, unit, rank;
};
struct BatchStamp {
  std::uint64_t mark, step, micro, rank;
};

template <class T>
T read(std::span<const std::byte> bytes, std::size_t index = 0) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void put(std::span<std::byte> bytes, const T& value, std::size_t index = 0) {
  std::memcpy(bytes.data() + index * sizeof(T), &value, sizeof(T));
}

std::string at(Step step, Micro micro, Unit unit) {
  return "step " + std::to_string(step.value()) + ", micro-batch " + std::to_string(micro.value()) + ", unit " + std::to_string(unit.value());
}

}  // namespace

StampedRank::StampedRank(const StampedModel& model, std::uint32_t rank, Findings& findings, Step first)
    : model_(model),
      rank_(rank),
      findings_(findings),
      version_(model.units, first.value() - 1),
      sums_(model.units, std::vector<float>(gradient_count * shards())),
      shards_(model.units, std::vector<float>(gradient_count)),
      decided_(first.value() - 1),
      judged_(model.units, first.value() - 1) {}

void StampedRank::wrong(const std::string& text) {
  const std::string full = "rank " + std::to_string(rank_) + ": " + text;
  // Lanes go on with what was posted before a fault; it runs on what the fault left, and must not reach the state.
  if (!model_.after_a_failure || !model_.after_a_failure()) findings_.add(Invariant::live_data, full);
  throw std::logic_error(full);
}

void StampedRank::expect(bool holds, const char* what, Step step, Micro micro, Unit unit) {
  if (!holds) wrong(std::string(what) + " at " + at(step, micro, unit));
}

Step StampedRank::committed() const { return Step{*std::min_element(version_.begin(), version_.end())}; }

void StampedRank::check_batch(std::span<const std::byte> batch, Step step, Micro micro) {
  const auto stamp = read<BatchStamp>(batch);
  expect(stamp.mark == batch_mark, "a freed or empty batch is read", step, micro, {});
  expect(stamp.step == step.value() && stamp.micro == micro.value() && stamp.rank == rank_, "another micro-batch's batch is read", step, micro, {});
}

void StampedRank::check_weights(std::span<const std::byte> weights, Step step, Unit unit) {
  for (std::uint32_t part = 0; part < shards(); ++part) {
    const std::uint32_t rank = rank_ / shards() * shards() + part;
    const auto stamp = read<WeightsStamp>(weights, part);
    expect(stamp.mark == weights_mark, "freed or empty weights are read", step, {}, unit);
    expect(stamp.unit == unit.value() && stamp.rank == rank, "another unit's weights are read", step, {}, unit);
    expect(stamp.version + 1 == step.value(), "weights of another step are read", step, {}, unit);
  }
}

void StampedRank::check_gradients(std::span<const std::byte> gradients, Step step, Micro micro, Unit unit) {
  const auto* input = reinterpret_cast<const float*>(gradients.data());
  for (std::uint32_t part = 0; part < shards(); ++part) {
    const float* own = input + part * gradient_count;
    expect(own[0] == static_cast<float>(step.value()) && own[1] == static_cast<float>(micro.value()) && own[2] == static_cast<float>(unit.value()) &&
               own[3] == static_cast<float>(rank_ + 1),
           "freed gradients, or those of another backward, are reduced", step, micro, unit);
  }
}

/// Every micro-batch of every rank once, in every unit's shard.
void StampedRank::check_reduced(Step step) {
  const auto ranks = static_cast<float>(model_.ranks), micros = static_cast<float>(model_.micro_batches);
  for (std::uint32_t unit = 0; unit < model_.units; ++unit) {
    const std::vector<float>& sum = shards_[unit];
    expect(model_.replicas == 1 || replicated_.contains(unit), "the verdict comes before the sum over replicas", step, {}, Unit{unit});
    expect(sum[0] == ranks * micros * static_cast<float>(step.value()) && sum[1] == ranks * micros * (micros - 1) / 2 &&
               sum[2] == ranks * micros * static_cast<float>(unit) && sum[3] == micros * ranks * (ranks + 1) / 2,
           "a gradient shard does not hold every micro-batch of every rank once", step, {}, Unit{unit});
  }
  replicated_.clear();
}

struct StampedLoader final : LoaderProgram {
  explicit StampedLoader(StampedRank& rank) : r(rank) {}
  BatchFacts load(Stream&, Step step, Micro micro, std::span<std::byte> batch) override {
    put(batch, BatchStamp{batch_mark, step.value(), micro.value(), r.rank_});
    const auto row = r.row_of(micro);
    return row ? BatchFacts{4, (step.value() * 0x9e3779b97f4a7c15U) ^ ((*row + 1) * 0xbf58476d1ce4e5b9U)} : BatchFacts{};
  }
  StampedRank& r;
};

struct StampedCompute final : ComputeProgram {
  explicit StampedCompute(StampedRank& rank) : r(rank) {}
  void forward(Stream&, Step step, Micro micro, Unit unit, std::span<const std::byte> batch, std::span<const std::byte> weights) override {
    r.check_batch(batch, step, micro);
    if (micro.value() >= r.model_.micro_batches) return evaluate(step, micro, unit, weights);
    r.check_weights(weights, step, unit);
    r.expect(unit.value() == 0 || r.saved_.contains({micro.value(), unit.value() - 1}), "forward before the unit below", step, micro, unit);
    r.expect(r.saved_.insert({micro.value(), unit.value()}).second, "forward twice", step, micro, unit);
  }
  /// Through the weights that the step has made.
  void evaluate(Step step, Micro micro, Unit unit, std::span<const std::byte> weights) {
    r.check_weights(weights, step.next(), unit);
    r.expect(r.decided_ == step.value() && r.saved_.empty(), "the validation set is evaluated within the step", step, micro, unit);
    r.expect(unit.value() == 0 || r.evaluated_.contains({micro.value(), unit.value() - 1}), "forward before the unit below", step, micro, unit);
    r.expect(r.evaluated_.insert({micro.value(), unit.value()}).second, "forward twice", step, micro, unit);
  }
  void backward(Stream&, Step step, Micro micro, Unit unit, std::span<const std::byte> batch, std::span<const std::byte> weights,
                std::span<std::byte> gradients) override {
    r.check_batch(batch, step, micro);
    if (!weights.empty()) r.check_weights(weights, step, unit);  // an embedding's backward needs none
    const bool last = unit.value() + 1 == r.model_.units;
    r.expect(last || !r.saved_.contains({micro.value(), unit.value() + 1}), "backward before the unit above", step, micro, unit);
    r.expect(r.saved_.erase({micro.value(), unit.value()}) == 1, "backward without a forward", step, micro, unit);
    for (std::uint32_t part = 0; part < r.shards(); ++part) {
      const float values[gradient_count] = {static_cast<float>(step.value()), static_cast<float>(micro.value()), static_cast<float>(unit.value()),
                                            static_cast<float>(r.rank_ + 1)};
      std::memcpy(gradients.data() + part * sizeof(values), values, sizeof(values));
    }
  }
  StampedRank& r;
};

struct StampedShard final : ShardProgram {
  explicit StampedShard(StampedRank& rank) : r(rank) {}
  [[nodiscard]] std::size_t weights_bytes(Unit) const override { return r.shards() * sizeof(WeightsStamp); }
  [[nodiscard]] std::size_t gradients_bytes(Unit) const override { return r.shards() * gradient_count * sizeof(float); }

  void scales(Stream& stream, Unit, Communicator& dp_shard) override {
    float amax = static_cast<float>(r.own_part() + 1);
    dp_shard.all_reduce(stream, TensorView::contiguous(&amax, DType::f32, {1}), Reduction::max);
    r.expect(amax == static_cast<float>(r.shards()), "the largest amax is wrong", {}, {}, {});
  }

  void gather(Stream& stream, Unit unit, std::span<std::byte> weights, Communicator& dp_shard) override {
    put(weights, WeightsStamp{weights_mark, r.version_.at(unit.value()), unit.value(), r.rank_}, r.own_part());
    const GatherPiece piece{weights.data(), sizeof(WeightsStamp)};
    dp_shard.all_gather(stream, {&piece, 1});
    r.bytes_gathered_ += (r.shards() - 1) * sizeof(WeightsStamp);
  }

  void accumulate(Stream&, Micro micro, Unit unit, std::span<std::byte> gradients) override {
    const Step step{r.version_.at(unit.value()) + 1};
    r.check_gradients(gradients, step, micro, unit);
    r.expect(r.reduced_.insert({micro.value(), unit.value()}).second, "gradients are summed twice", step, micro, unit);
    add_to_sums(micro, unit, gradients);
  }
  void add_to_sums(Micro micro, Unit unit, std::span<const std::byte> gradients) {
    std::vector<float>& sums = r.sums_[unit.value()];
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = (micro.value() == 0 ? 0 : sums[i]) + read<float>(gradients, i);
  }

  void reduce(Stream& stream, Micro micro, Unit unit, std::span<std::byte> gradients, Communicator& dp_shard) override {
    const Step step{r.version_.at(unit.value()) + 1};
    r.check_gradients(gradients, step, micro, unit);
    r.expect(!r.model_.step_in_backward || unit.value() + 2 >= r.model_.units || r.version_[unit.value() + 2] == step.value(),
             "gradients are reduced into the place of a unit that was not updated", step, micro, unit);
    const auto* input = reinterpret_cast<const float*>(gradients.data());
    if (r.model_.reduce_last) {
      add_to_sums(micro, unit, gradients);
      input = r.sums_[unit.value()].data();
    }
    float sums[gradient_count] = {};
    const ReducePiece piece{input, sums, gradient_count};
    dp_shard.reduce_scatter(stream, {&piece, 1});
    const auto n = static_cast<float>(r.shards() * (r.model_.reduce_last ? r.model_.micro_batches : 1));
    r.expect(sums[0] == n * static_cast<float>(step.value()) && sums[2] == n * static_cast<float>(unit.value()), "the ranks' gradients do not belong together",
             step, micro, unit);
    r.expect(r.reduced_.insert({micro.value(), unit.value()}).second, "gradients are reduced twice", step, micro, unit);
    const bool first = micro.value() == 0 || r.model_.reduce_last;
    for (std::size_t i = 0; i < gradient_count; ++i) r.shards_[unit.value()][i] = (first ? 0 : r.shards_[unit.value()][i]) + sums[i];
    r.bytes_reduced_ += (r.shards() - 1) * gradient_count * sizeof(float);
  }

  void all_reduce(Stream& stream, Unit unit, Communicator& dp_replicate) override {
    const Step step{r.version_.at(unit.value()) + 1};
    r.expect(dp_replicate.size() == r.model_.replicas, "the sum over replicas has other members", step, {}, unit);
    for (std::uint32_t micro = 0; micro < r.model_.micro_batches; ++micro)
      r.expect(r.reduced_.contains({micro, unit.value()}), "replicas sum gradients that are not whole", step, Micro{micro}, unit);
    r.expect(r.replicated_.insert(unit.value()).second, "gradients are summed over the replicas twice", step, {}, unit);
    dp_replicate.all_reduce(stream, TensorView::contiguous(r.shards_[unit.value()].data(), DType::f32, {gradient_count}), Reduction::sum);
  }

  void verdict(Stream& stream, EpochId epoch, Step step, Communicator& world) override {
    r.expect(r.reduced_.size() == std::size_t{r.model_.units} * r.model_.micro_batches, "the verdict comes before the last reduce", step, {}, {});
    const bool bad = r.model_.overflows && r.model_.overflows(step);
    double loss = 0, squares = 0, tokens = 0;  // in steps of 1/64: sums are exact in any order
    for (std::uint32_t micro = 0; micro < r.model_.micro_batches; ++micro) {
      const auto row = r.row_of(Micro{micro});
      if (!row) continue;
      const double own = static_cast<double>((step.value() * 7919 + *row * 104729 + r.model_.seed) % 1000) / 64;
      loss += own;
      squares += own * own;
      tokens += 4;
    }
    const double tag = verdict_tag(epoch.value(), step.value());
    double values[5] = {squares, loss, tokens, bad ? 1.0 : 0.0, tag};
    world.all_reduce(stream, TensorView::contiguous(values, DType::f64, {5}), Reduction::sum);
    const VerdictSums sums{values[0], values[1], values[2], values[3], values[4]};
    r.numbers_ = {};
    r.numbers_.verdict = decide_verdict(sums, r.model_.ranks, tag, values[2], 1.0, false);
    r.numbers_.bytes_gathered = std::exchange(r.bytes_gathered_, 0);
    r.numbers_.bytes_reduced = std::exchange(r.bytes_reduced_, 0);
    r.expect(r.saved_.empty(), "the verdict comes before the last backward", step, {}, {});
    r.check_reduced(step);
    r.reduced_.clear();
    r.decided_ = step.value();
  }

  void unit_verdict(Stream& stream, EpochId epoch, Step step, Unit unit, Communicator& world) override {
    r.expect(r.model_.step_in_backward && unit.value() > 0, "one unit is judged in a step that judges all", step, {}, unit);
    for (std::uint32_t micro = 0; micro < r.model_.micro_batches; ++micro)
      r.expect(r.reduced_.contains({micro, unit.value()}), "a unit is judged before its gradients are whole", step, Micro{micro}, unit);
    r.expect(r.model_.replicas == 1 || r.replicated_.contains(unit.value()), "a unit is judged before the sum over replicas", step, {}, unit);
    double tag = verdict_tag(epoch.value(), step.value());
    const double right = tag * r.model_.ranks;
    world.all_reduce(stream, TensorView::contiguous(&tag, DType::f64, {1}), Reduction::sum);
    r.expect(tag == right, "ranks judge other steps", step, {}, unit);
    r.judged_[unit.value()] = step.value();
  }

  void evaluate(Stream& stream, Communicator& world) override {
    const Step step{r.decided_};
    r.expect(r.evaluated_.size() == std::size_t{r.model_.units} * r.model_.evaluation_batches, "the validation's loss is summed before its last forward", step,
             {}, {});
    r.evaluated_.clear();
    double values[2] = {static_cast<double>(step.value()) + r.rank_, 4.0 * r.model_.evaluation_batches};
    world.all_reduce(stream, TensorView::contiguous(values, DType::f64, {2}), Reduction::sum);
    r.numbers_.evaluation_loss = values[0] / values[1];
    r.numbers_.evaluation_tokens = values[1];
    r.bytes_gathered_ = 0;
  }

  void optimize(Stream&, Step step, Unit unit, double learning_rate) override {
    const bool early = r.model_.step_in_backward && unit.value() > 0;
    r.expect((early ? r.judged_[unit.value()] : r.decided_) == step.value(), "the optimizer runs before the verdict", step, {}, unit);
    r.expect(r.version_.at(unit.value()) + 1 == step.value(), "the optimizer runs twice, or has left out a step", step, {}, unit);
    r.version_[unit.value()] = step.value();
    r.numbers_.learning_rate = learning_rate;
  }

  [[nodiscard]] StepNumbers numbers() const override {
    StepNumbers numbers = r.numbers_;
    if (r.distort_numbers) r.distort_numbers(numbers);
    return numbers;
  }
  StampedRank& r;
};

struct StampedSnapshot final : SnapshotProgram {
  explicit StampedSnapshot(StampedRank& rank) : r(rank) {}
  [[nodiscard]] std::size_t snapshot_bytes() const override { return 2 * sizeof(std::uint64_t); }
  void copy(Stream&, Step step, std::span<std::byte> snapshot) override {
    for (std::uint32_t unit = 0; unit < r.model_.units; ++unit)
      r.expect(r.version_[unit] == step.value(), "a snapshot of another step's state", step, {}, Unit{unit});
    put(snapshot, snapshot_mark, 0);
    put(snapshot, step.value(), 1);
  }
  SavedShard save(Step step, std::span<const std::byte> snapshot, const std::filesystem::path&) override {
    r.expect(read<std::uint64_t>(snapshot, 0) == snapshot_mark, "a freed or empty snapshot is saved", step, {}, {});
    r.expect(read<std::uint64_t>(snapshot, 1) == step.value(), "another step's snapshot is saved", step, {}, {});
    return {"rank-" + std::to_string(r.rank_), snapshot.size(), step.value()};
  }
  StampedRank& r;
};

struct StampedKeep final : KeepProgram {
  StampedKeep(StampedRank& rank, StampedRank::Memory to) : r(rank), memory(std::move(to)) {}
  KeptSnapshot keep(Stream&, EpochId epoch, Step step, std::uint32_t slot) override {
    for (std::uint32_t unit = 0; unit < r.model_.units; ++unit)
      r.expect(r.version_[unit] == step.value(), "another step's state is kept in memory", step, {}, Unit{unit});
    memory(epoch, step, slot);
    return {8, step.value()};
  }
  StampedRank& r;
  StampedRank::Memory memory;
};

std::shared_ptr<KeepProgram> StampedRank::keep(Memory memory) { return std::make_shared<StampedKeep>(*this, std::move(memory)); }
std::shared_ptr<LoaderProgram> StampedRank::loader() { return std::make_shared<StampedLoader>(*this); }
std::shared_ptr<ComputeProgram> StampedRank::compute() { return std::make_shared<StampedCompute>(*this); }
std::shared_ptr<ShardProgram> StampedRank::shard() { return std::make_shared<StampedShard>(*this); }
std::shared_ptr<SnapshotProgram> StampedRank::snapshot() { return std::make_shared<StampedSnapshot>(*this); }

}  // namespace troupe
