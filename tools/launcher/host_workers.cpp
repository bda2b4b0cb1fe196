#include "tools/launcher/host_workers.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace troupe {
namespace {

void set_variable(WorkerCommand& command, const std::string& name, const std::string& value) {
  std::erase_if(command.environment, [&](const auto& entry) { return entry.first == name; });
  command.environment.emplace_back(name, value);
}

}  // namespace

Result<void> HostWorkers::take_memory() {
  auto memory = AgentMemory::create();
  if (!memory) return memory.error();
  memory_ = Descriptor{*memory};
  return {};
}

WorkerCommand HostWorkers::describe(Rank first, std::uint32_t ranks) {
  WorkerCommand command{.executable = options_.executable,
                        .arguments = {},
                        .environment = options_.environment,
                        .log = options_.run_folder / "logs" / fmt::format("rank-{}.log", first.value()),
                        .first = first,
                        .ranks = ranks};
  if (ranks > 1) command.arguments = {"--ranks-in-process", std::to_string(ranks)};
  set_variable(command, "TROUPE_RANK", std::to_string(first.value()));
  set_variable(command, "LOCAL_RANK", std::to_string(first.value() - options_.first.value()));
  command.memory = memory_.get();
  set_variable(command, "TROUPE_SNAPSHOTS", "5");
  for (std::uint32_t i = 0; i < ranks; ++i) {
    const Rank rank{first.value() + i};
    if (std::ranges::none_of(ledgers_, [rank](const auto& ledger) { return ledger->rank == rank; }))
      ledgers_.push_back(std::make_unique<RankLedger>(rank, memory_.get()));
  }
  return command;
}

Result<void> HostWorkers::start(Rank first, std::uint32_t ranks) {
  commands_.push_back(describe(first, ranks));
  return agent_.start(commands_.back());
}

Result<void> HostWorkers::start_loader(std::uint32_t number, std::uint32_t world_size) {
  WorkerCommand command{.executable = options_.executable,
                        .arguments = {"--loader"},
                        .environment = options_.environment,
                        .log = options_.run_folder / "logs" / fmt::format("loader-{}.log", number),
                        .first = Rank{world_size + number},
                        .ranks = 1,
                        .loader = number};
  set_variable(command, "TROUPE_RANK", std::to_string(number));
  set_variable(command, "LOCAL_RANK", std::to_string(number));
  commands_.push_back(command);
  return agent_.start(command);
}

WorkerCommand* HostWorkers::command_of(Rank rank) {
  const auto found = std::ranges::find_if(commands_, [rank](const WorkerCommand& c) { return c.first <= rank && rank.value() - c.first.value() < c.ranks; });
  return found == commands_.end() ? nullptr : &*found;
}

void HostWorkers::obey(const WorkerOrder& order) {
  if (order.let_go) return let_go(order);
  WorkerCommand* command = command_of(order.rank);
  if (command == nullptr) {  // a rank that there was none of before
    commands_.push_back(describe(order.rank, 1));
    command = &commands_.back();
  } else if (std::erase(let_go_, command->first) == 0 && command->incarnation >= order.incarnation) {
    return;
  }
  set_variable(*command, "TROUPE_JOINS", "1");
  command->incarnation = order.incarnation;
  if (!agent_.kill(command->first)) start_anew(*command);  // else when it is reaped
}

/// It is dead, or it ends by itself, as it was told to.
void HostWorkers::let_go(const WorkerOrder& order) {
  const WorkerCommand* const command = command_of(order.rank);
  if (command == nullptr) return;
  if (std::ranges::find(let_go_, command->first) == let_go_.end()) let_go_.push_back(command->first);
  if (order.kill) agent_.kill(command->first);
}

void HostWorkers::start_anew(WorkerCommand& command) {
  set_variable(command, "TROUPE_INCARNATION", std::to_string(command.incarnation.value()));
  if (auto started = agent_.start(command); !started)
    handler_.ended(
        WorkerEnd{.first = command.first, .ranks = command.ranks, .log = command.log, .incarnation = command.incarnation, .problem = started.error().message});
}

void HostWorkers::look_at_ledgers() {
  for (const auto& rank : ledgers_) {
    for (const FaultFiring& firing : rank->ledger.since(rank->seen)) handler_.fired(rank->rank, firing);
    rank->seen = rank->ledger.count();
  }
}

void HostWorkers::look() {
  look_at_ledgers();
  for (WorkerEnd& end : agent_.reap()) {
    if (WorkerCommand* const command = command_of(end.first); command != nullptr && command->incarnation > end.incarnation)
      start_anew(*command);
    else
      tell(std::move(end));
  }
}

void HostWorkers::tell(WorkerEnd end) {
  end.let_go = std::ranges::find(let_go_, end.first) != let_go_.end();
  handler_.ended(std::move(end));
}

void HostWorkers::stop(std::chrono::milliseconds patience, const SignalQueue* signals) {
  for (WorkerEnd& end : agent_.stop(patience, signals)) tell(std::move(end));
}

}  // namespace troupe
