#include "src/simulation/simulated_communicator.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/simulation/collective_bytes.hpp"
#include "src/simulation/core_pool.hpp"
#include "src/simulation/simulated_lane.hpp"
#include "src/simulation/virtual_world.hpp"

namespace troupe {
namespace {

using Call = SimulatedGroup::Call;
using Kind = SimulatedGroup::Kind;

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::all_gather: return "all-gather";
    case Kind::reduce_scatter: return "reduce-scatter";
    case Kind::all_reduce: return "all-reduce";
    case Kind::broadcast: return "broadcast";
    case Kind::all_to_all: return "all-to-all";
  }
  return "unknown";
}

std::string describe(const Call& call) { return std::string(name_of(call.kind)) + " of " + std::to_string(call.bytes) + " bytes (" + call.type + ")"; }

class SimulatedCommunicator final : public Communicator {
 public:
  SimulatedCommunicator(SimulatedGroup& group, std::uint32_t rank, std::uint32_t size) : group_(group), rank_(rank), size_(size) {}
  [[nodiscard]] std::uint32_t rank() const noexcept override { return rank_; }
  [[nodiscard]] std::uint32_t size() const noexcept override { return size_; }

  void all_gather(Stream& stream, std::span<const GatherPiece> pieces) override {
    Call call{.kind = Kind::all_gather, .type = std::to_string(pieces.size()) + " pieces"};
    for (const GatherPiece& piece : pieces) call.bytes += piece.bytes * size_;
    call.gathers = pieces;
    group_.call(rank_, stream, call);
  }
  void reduce_scatter(Stream& stream, std::span<const ReducePiece> pieces) override {
    Call call{.kind = Kind::reduce_scatter, .type = std::to_string(pieces.size()) + " pieces f32 sum"};
    for (const ReducePiece& piece : pieces) call.bytes += piece.count * size_ * sizeof(float);
    call.reduces = pieces;
    group_.call(rank_, stream, call);
  }
  void all_reduce(Stream& stream, TensorView values, Reduction reduction) override {
    Call call{.kind = Kind::all_reduce,
              .bytes = values.bytes(),
              .type = std::string(troupe::name_of(values.dtype)) + (reduction == Reduction::sum ? " sum" : " max")};
    call.values = values;
    call.reduction = reduction;
    group_.call(rank_, stream, call);
  }
  void broadcast(Stream& stream, std::span<std::byte> data, std::uint32_t root) override {
    Call call{.kind = Kind::broadcast, .bytes = data.size(), .type = "u8 from " + std::to_string(root)};
    call.output = data;
    call.root = root;
    group_.call(rank_, stream, call);
  }
  void all_to_all(Stream& stream, std::span<const std::byte> input, std::span<std::byte> output) override {
    Call call{.kind = Kind::all_to_all, .bytes = input.size(), .type = "u8"};
    call.input = input;
    call.output = output;
    group_.call(rank_, stream, call);
  }
  void abort(const std::string& cause) noexcept override { group_.abort(cause); }

 private:
  SimulatedGroup& group_;
  const std::uint32_t rank_, size_;
};

}  // namespace

SimulatedGroup::SimulatedGroup(VirtualWorld& world, std::string name, std::uint32_t size) : world_(world), name_(std::move(name)), arrivals_(size) {}
SimulatedGroup::~SimulatedGroup() = default;

std::unique_ptr<Communicator> SimulatedGroup::member(std::uint32_t rank) {
  return std::make_unique<SimulatedCommunicator>(*this, rank, static_cast<std::uint32_t>(arrivals_.size()));
}

void SimulatedGroup::compare(std::uint32_t rank, const Call& call) {
  for (std::uint32_t other = 0; other < arrivals_.size(); ++other) {
    const Call* there = arrivals_[other].call;
    if (!there || (there->kind == call.kind && there->bytes == call.bytes && there->type == call.type)) continue;
    abort(name_ + ": rank " + std::to_string(other) + " calls " + describe(*there) + ", rank " + std::to_string(rank) + " calls " + describe(call) +
          "; their plans differ");
    return;
  }
}

void SimulatedGroup::call(std::uint32_t rank, Stream& stream, const Call& call) {
  SimulatedLane& lane = dynamic_cast<SimulatedStream&>(stream).lane();
  if (!dead_) compare(rank, call);
  if (dead_) throw CollectiveError(name_ + ": " + *dead_);
  arrivals_[rank] = {&call, &lane, lane.take_cost(), world_.causality().stamp()};
  if (++here_ == arrivals_.size()) close_round();
  lane.wait();
  if (dead_) throw CollectiveError(name_ + ": " + *dead_);
  world_.causality().join(together_);
}

/// Everybody is here: the bytes move, and all go on, when the longest of their times has passed. Threads that share cores each do their part first.
void SimulatedGroup::close_round() {
  Nanos cost{0};
  together_ = {};
  for (const Arrival& arrival : arrivals_) {
    cost = std::max(cost, arrival.cost);
    together_.join(arrival.stamp);
  }
  if (arrivals_.front().lane->cores() == nullptr || cost <= Nanos{0}) return world_.clock().after(cost, [this, round = round_] { end_round(round); });
  const auto left = std::make_shared<std::size_t>(arrivals_.size());
  for (const Arrival& arrival : arrivals_) {
    arrival.lane->cores()->spend(
        arrival.cost,
        [this, left, round = round_] {
          if (--*left == 0) end_round(round);
        },
        arrival.lane);
  }
}

void SimulatedGroup::end_round(std::uint64_t round) {
  if (dead_ || round != round_) return;
  try {
    if (on_round_) on_round_(round);
    move_bytes();
  } catch (const std::exception& problem) {
    dead_ = problem.what();
  }
  ++round_;
  wake_all();
}

/// The first to go on may call the next collective before the last has woken: the round is over for all of them before.
void SimulatedGroup::wake_all() {
  std::vector<SimulatedLane*> lanes;
  for (Arrival& arrival : arrivals_) {
    if (arrival.call) lanes.push_back(arrival.lane);
    arrival.call = nullptr;
  }
  here_ = 0;
  for (SimulatedLane* lane : lanes) lane->resume();
}

void SimulatedGroup::abort(const std::string& cause) noexcept {
  if (dead_) return;
  dead_ = cause;
  ++round_;
  world_.clock().after(Nanos{0}, [this] { wake_all(); });
}

void SimulatedGroup::lose(std::uint32_t rank) {
  arrivals_[rank] = {};
  here_ = static_cast<std::uint32_t>(std::count_if(arrivals_.begin(), arrivals_.end(), [](const Arrival& arrival) { return arrival.call != nullptr; }));
  ++round_;  // one that was about to end does not
}

std::string SimulatedGroup::waiting() const {
  if (here_ == 0 || here_ == arrivals_.size()) return {};
  std::string here, missing;
  for (std::size_t rank = 0; rank < arrivals_.size(); ++rank) {
    std::string& list = arrivals_[rank].call ? here : missing;
    list += (list.empty() ? "" : ", ") + std::to_string(rank);
  }
  const auto first = std::find_if(arrivals_.begin(), arrivals_.end(), [](const Arrival& arrival) { return arrival.call != nullptr; });
  return name_ + ", " + name_of(first->call->kind) + ": ranks " + here + " are here, " + missing + " missing";
}

void SimulatedGroup::move_bytes() {
  std::vector<const Call*> calls;
  calls.reserve(arrivals_.size());
  for (const Arrival& arrival : arrivals_) calls.push_back(arrival.call);
  move_collective_bytes(calls);
}

}  // namespace troupe
