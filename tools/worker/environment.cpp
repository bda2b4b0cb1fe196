#include "tools/worker/environment.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>

#include "tools/launcher/socket.hpp"
#include "tools/worker/hostlist.hpp"

namespace troupe {
namespace {

constexpr std::uint32_t default_master_port = 29500;

class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}
  [[nodiscard]] std::optional<std::string> text(const char* name) const {
    auto value = environment_(name);
    return value && !value->empty() ? value : std::nullopt;
  }
  /// The first of the names that is set.
  Result<std::uint32_t> number(std::initializer_list<const char*> names, std::optional<std::uint32_t> otherwise, std::uint32_t most = UINT32_MAX) const {
    for (const char* name : names) {
      const auto value = text(name);
      if (!value) continue;
      std::uint32_t result = 0;
      const auto [end, problem] = std::from_chars(value->data(), value->data() + value->size(), result);
      if (problem != std::errc{} || end != value->data() + value->size() || result > most)
        return Error{fmt::format("{} is \"{}\": expected a whole number from 0 to {}", name, *value, most)};
      return result;
    }
    if (otherwise) return *otherwise;
    return Error{fmt::format("{} is not set", *names.begin())};
  }

 private:
  const Environment& environment_;
};

Result<void> fill_numbers(const Reader& reader, std::initializer_list<const char*> rank, std::initializer_list<const char*> world,
                          std::initializer_list<const char*> local, WorkerPlace& place) {
  auto rank_number = reader.number(rank, std::nullopt);
  if (!rank_number) return rank_number.error();
  auto world_size = reader.number(world, std::nullopt);
  if (!world_size) return world_size.error();
  auto local_rank = reader.number(local, *rank_number);
  if (!local_rank) return local_rank.error();
  const bool joins = reader.number({"TROUPE_JOINS"}, 0).value() == 1;  // a live run, perhaps as a rank that it did not begin with
  if (*world_size == 0 || (*rank_number >= *world_size && !joins))
    return Error{fmt::format("{} is {} and {} is {}: ranks count from 0 to the world size minus 1", *rank.begin(), *rank_number, *world.begin(), *world_size)};
  place.rank = Rank{*rank_number};
  place.world_size = *world_size;
  place.local_rank = *local_rank;
  return {};
}

/// Rank 0 hosts the Coordinator beside the master's port.
Result<void> fill_master(const Reader& reader, const std::string& host, std::optional<std::uint32_t> default_port, WorkerPlace& place) {
  auto port = reader.number({"MASTER_PORT"}, default_port, 65534);
  if (!port) return port.error();
  place.coordinator_host = host;
  place.coordinator_port = static_cast<std::uint16_t>(*port + 1);
  place.hosts_coordinator = place.rank == Rank{0};
  return {};
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>{value};
  };
}

Result<WorkerPlace> place_worker(const Environment& environment) {
  const Reader reader(environment);
  WorkerPlace place;
  if (const auto coordinator = reader.text("TROUPE_COORDINATOR")) {
    auto where = parse_host_port(*coordinator);
    if (!where) return Error{"TROUPE_COORDINATOR: " + where.error().message};
    place.coordinator_host = where->host;
    place.coordinator_port = where->port;
    auto filled = fill_numbers(reader, {"TROUPE_RANK", "RANK", "SLURM_PROCID"}, {"TROUPE_WORLD_SIZE", "WORLD_SIZE", "SLURM_NTASKS"},
                               {"LOCAL_RANK", "SLURM_LOCALID"}, place);
    if (!filled) return filled.error();
    auto incarnation = reader.number({"TROUPE_INCARNATION"}, 0);
    if (!incarnation) return incarnation.error();
    place.incarnation = Incarnation{*incarnation};
    if (reader.text("TROUPE_SNAPSHOTS")) {
      auto descriptor = reader.number({"TROUPE_SNAPSHOTS"}, std::nullopt, 1024);
      if (!descriptor) return descriptor.error();
      place.snapshot_descriptor = static_cast<int>(*descriptor);
    }
    return place;
  }
  if (reader.text("RANK")) {
    place.starter = WorkerPlace::Starter::torchrun;
    if (auto filled = fill_numbers(reader, {"RANK"}, {"WORLD_SIZE"}, {"LOCAL_RANK"}, place); !filled) return filled.error();
    const auto host = reader.text("MASTER_ADDR");
    if (!host) return Error{"RANK is set but MASTER_ADDR is not: torchrun sets both"};
    if (auto filled = fill_master(reader, *host, std::nullopt, place); !filled) return filled.error();
    return place;
  }
  if (reader.text("SLURM_PROCID")) {
    place.starter = WorkerPlace::Starter::slurm;
    if (auto filled = fill_numbers(reader, {"SLURM_PROCID"}, {"SLURM_NTASKS"}, {"SLURM_LOCALID"}, place); !filled) return filled.error();
    auto host = reader.text("MASTER_ADDR");
    if (!host) {
      auto hosts = expand_hostlist(reader.text("SLURM_NODELIST").value_or(reader.text("SLURM_JOB_NODELIST").value_or("")));
      if (!hosts) return Error{"SLURM_NODELIST: " + hosts.error().message};
      host = hosts->front();
    }
    if (auto filled = fill_master(reader, *host, default_master_port, place); !filled) return filled.error();
    return place;
  }
  return Error{
      "a worker needs TROUPE_COORDINATOR=host:port with TROUPE_RANK and TROUPE_WORLD_SIZE, torchrun's variables (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT) "
      "or Slurm's "
      "(SLURM_PROCID, SLURM_NTASKS, SLURM_NODELIST); to start a whole job use: troupe train CONFIG.toml --nproc N"};
}

std::string network_devices(const Environment& environment, const std::string& interface) {
  if (auto devices = environment("TROUPE_NET_DEVICES")) return *devices;
  return interface.empty() ? "lo" : interface;
}

}  // namespace troupe
