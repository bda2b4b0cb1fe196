// benchmark checkpoint: 1 GiB of state saved and loaded against dd and torch.distributed.checkpoint, on disk and tmpfs; fails below 2 x it or 0.9 of dd (disk)
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <vector>

#include "src/checkpoint/checkpoint_store.hpp"
#include "src/checkpoint/restore.hpp"
#include "src/checkpoint/snapshot.hpp"
#include "src/device/device.hpp"

namespace {

using namespace troupe;
namespace fs = std::filesystem;

constexpr int rounds = 9;
constexpr std::uint64_t tmpfs_room = std::uint64_t{6} << 30U;      ///< dd's file, two or three of ours, one of PyTorch's
constexpr std::int64_t tensors = 32, rows = 8192, columns = 1024;  // 32 MiB each, 1 GiB in all

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void require(const Result<void>& done) {
  if (!done) throw std::runtime_error(done.error().message);
}

void shell(const std::string& command) {
  if (std::system(command.c_str()) != 0) throw std::runtime_error("failed: " + command);
}

class IdleStream final : public Stream {};

/// Weights and two moments of one rank, as a checkpoint sees them.
class State {
 public:
  State() : memory_(allocate_host(static_cast<std::size_t>(tensors * rows * columns) * sizeof(float))) {
    for (std::int64_t i = 0; i < tensors; ++i) {
      auto* data = memory_->bytes().data() + static_cast<std::size_t>(i * rows * columns) * sizeof(float);
      list.push_back({.name = "layer." + std::to_string(i),
                      .global_shape = {rows, columns},
                      .first_row = 0,
                      .rows = rows,
                      .view = TensorView::contiguous(data, DType::f32, {rows, columns}),
                      .model = i < tensors / 3});
    }
  }
  void fill() {
    auto* values = reinterpret_cast<float*>(memory_->bytes().data());
    for (std::int64_t i = 0; i < tensors * rows * columns; ++i) values[i] = static_cast<float>(i % 8191) * 0.37F;
  }
  void clear() { std::ranges::fill(memory_->bytes(), std::byte{0}); }  // and has the system give the pages
  [[nodiscard]] bool equals(const State& other) const { return std::ranges::equal(memory_->bytes(), other.memory_->bytes()); }
  [[nodiscard]] double gibibytes() const { return static_cast<double>(memory_->bytes().size()) / 1073741824.0; }
  StateTensors list;

 private:
  std::unique_ptr<Buffer> memory_;
};

/// benchmarks/torch_checkpoint.py in a process of its own, asked line by line. Without tools/setup.sh --python there is none.
class TorchSide {
 public:
  explicit TorchSide(const fs::path& folder) {
    const fs::path python = "third_party/venv/bin/python";
    if (!fs::exists(python)) return;
    const std::string answers = (folder / "answers").string();
    shell("mkfifo " + answers);
    const std::string command =
        fmt::format("{} benchmarks/torch_checkpoint.py {} {} {} {} > {}", python.string(), folder.string(), tensors, rows, columns, answers);
    questions_ = ::popen(command.c_str(), "w");
    answers_ = std::fopen(answers.c_str(), "r");
    if (questions_ == nullptr || answers_ == nullptr || read() != "ready") throw std::runtime_error("torch_checkpoint.py does not start");
  }
  ~TorchSide() {
    if (questions_ != nullptr) ::pclose(questions_);
    if (answers_ != nullptr) std::fclose(answers_);
  }
  TorchSide(const TorchSide&) = delete;
  TorchSide& operator=(const TorchSide&) = delete;
  [[nodiscard]] bool there() const { return questions_ != nullptr; }
  double seconds(const char* what, std::uint64_t number) {
    fmt::print(questions_, "{} {}\n", what, number);
    std::fflush(questions_);
    return std::stod(read());
  }

 private:
  std::string read() {
    std::array<char, 64> line{};
    if (std::fgets(line.data(), line.size(), answers_) == nullptr) return {};
    std::string text(line.data());
    text.erase(text.find_last_not_of('\n') + 1);
    return text;
  }
  std::FILE *questions_ = nullptr, *answers_ = nullptr;
};

struct Times {
  std::vector<double> dd_write, save, dd_read, load, check, torch_save, torch_load;
};

/// Where files are written.
struct Place {
  std::string name;
  fs::path folder;
  bool memory = false;  ///< a tmpfs
};

void round(const Place& place, State& state, State& again, std::span<std::byte> slot, SnapshotProgram& program, CheckpointStore& store, Storage& storage,
           std::uint64_t number, TorchSide& torch, Times& times) {
  const std::string file = (place.folder / "dd").string();
  const Step step{number};
  IdleStream stream;
  program.copy(stream, step, slot);
  times.dd_write.push_back(seconds_of([&] { shell("dd if=/dev/zero of=" + file + " bs=16M count=64 conv=fsync status=none"); }));
  times.save.push_back(seconds_of([&] {
    const SavedShard shard = program.save(step, slot, store.writing_folder(step, EpochId{1}));
    require(store.seal({.step = step, .epoch = EpochId{1}, .world = 1}, {shard}));
  }));
  if (torch.there()) times.torch_save.push_back(torch.seconds("save", number));
  again.clear();
  const char* direct = place.memory ? "" : " iflag=direct";
  times.dd_read.push_back(seconds_of([&] { shell("dd if=" + file + " of=/dev/null bs=16M status=none" + direct); }));
  times.load.push_back(seconds_of([&] {
    const auto found = store.open(step);
    if (!found) throw std::runtime_error(found.error().message);
    require(restore_state(found->manifest, found->folder, storage, again.list));
  }));
  if (torch.there()) times.torch_load.push_back(torch.seconds("load", number));
  if (!again.equals(state)) throw std::runtime_error("what was loaded is not what was saved");
  std::vector<std::string> warnings;
  times.check.push_back(seconds_of([&] {
    if (!store.find(static_cast<std::int64_t>(number), true, warnings)) throw std::runtime_error("the checkpoint is damaged");
  }));
  require(store.purge(2));
}

/// The median of the rounds' ratios.
double print(const char* what, double gibibytes, const std::vector<double>& reference, const std::vector<double>& ours) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < ours.size(); ++i) ratios.push_back(reference[i] / ours[i]);
  fmt::print("{:<46} {:6.2f} GiB/s  {:6.2f} GiB/s  {:5.2f}  (each round: {:.2f})\n", what, gibibytes / median(reference), gibibytes / median(ours),
             median(ratios), fmt::join(ratios, " "));
  return median(ratios);
}

/// In memory twice as fast as PyTorch; on a disk that, or 0.9 of what dd reaches: whichever is less. 1: missed.
int judge(const Place& place, const char* what, double to_torch, double to_dd) {
  const bool met = to_torch >= 2 || (!place.memory && to_dd >= 0.9);
  fmt::print("{}, {}: {:.2f} x PyTorch, {:.2f} x dd; asked are 2 x PyTorch{}: {}\n", place.name, what, to_torch, to_dd, place.memory ? "" : " or 0.9 x dd",
             met ? "met" : "MISSED");
  return met ? 0 : 1;
}

int measure(const Place& place) {
  fs::remove_all(place.folder);
  fs::create_directories(place.folder);
  const auto storage = make_posix_storage();
  CheckpointStore store(place.folder / "checkpoint", *storage);
  State state, again;
  state.fill();
  const auto program = make_snapshot_program(state.list, {.rank = 0, .world = 1}, *storage);
  const auto slot = allocate_host(program->snapshot_bytes());
  Times times;
  int missed = 0;
  {
    TorchSide torch(place.folder);
    for (std::uint64_t i = 1; i <= rounds; ++i) round(place, state, again, slot->bytes(), *program, store, *storage, i, torch, times);
    fmt::print("{} ({}): {:.2f} GiB of state, one rank; {} rounds, each: dd, save, PyTorch's save, dd, load, PyTorch's load, check; medians\n\n", place.name,
               place.folder.string(), state.gibibytes(), rounds);
    fmt::print("{:<46} {:>12}  {:>12}  {:>5}\n", "", "dd", "Troupe", "ratio");
    const double save = print("save and seal : dd bs=16M conv=fsync", state.gibibytes(), times.dd_write, times.save);
    const double load =
        print(place.memory ? "load, each piece checked : dd" : "load, each piece checked : dd iflag=direct", state.gibibytes(), times.dd_read, times.load);
    print("check before the load : the same dd", state.gibibytes(), times.dd_read, times.check);
    if (torch.there()) {
      fmt::print("\n{:<46} {:>12}  {:>12}  {:>5}\n", "", "PyTorch", "Troupe", "ratio");
      const double torch_save = print("save and seal : torch.distributed.checkpoint", state.gibibytes(), times.torch_save, times.save);
      const double torch_load = print("load, each piece checked : the same, unchecked", state.gibibytes(), times.torch_load, times.load);
      fmt::print("\n");
      missed = judge(place, "save", torch_save, save) + judge(place, "load", torch_load, load);
      fmt::print("\n");
    } else {
      fmt::print("\nno PyTorch to compare with: tools/setup.sh --python\n\n");
      missed = 1;
    }
  }
  fs::remove_all(place.folder);
  return missed;
}

/// A tmpfs with room for what a round holds; empty: there is none.
fs::path tmpfs_folder() {
  for (const char* path : {"/dev/shm", "/run", "/tmp"}) {
    struct statfs facts {};
    if (::statfs(path, &facts) == 0 && facts.f_type == TMPFS_MAGIC && facts.f_bavail * static_cast<std::uint64_t>(facts.f_bsize) > tmpfs_room) return path;
  }
  return {};
}

}  // namespace

int main() {
  const char* where = std::getenv("TROUPE_BENCHMARK_FOLDER");
  std::vector<Place> places{{"disk", fs::path(where != nullptr ? where : "build") / "checkpoint-benchmark", false}};
  const char* const memory = std::getenv("TROUPE_BENCHMARK_TMPFS");
  const fs::path tmpfs = memory != nullptr ? fs::path(memory) : tmpfs_folder();
  int missed = 0;
  if (!tmpfs.empty()) places.push_back({"tmpfs", tmpfs / "checkpoint-benchmark", true});
  for (const Place& place : places) missed += measure(place);
  if (tmpfs.empty()) {
    fmt::print("no tmpfs with {} GiB of room: mount one and name it in TROUPE_BENCHMARK_TMPFS\n", tmpfs_room >> 30U);
    ++missed;
  }
  return missed == 0 ? 0 : 1;
}
