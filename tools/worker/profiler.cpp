#include "tools/worker/profiler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "src/trace/chrome_trace.hpp"
#include "src/trace/ring_tracer.hpp"

namespace troupe {
namespace {

using nlohmann::json;

Result<void> write_whole(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::path temporary = file;
  temporary += ".tmp";
  {
    std::ofstream out(temporary, std::ios::binary);
    out << text;
    out.flush();
    if (!out) return Error{"profiling: cannot write " + temporary.string()};
  }
  std::error_code problem;
  std::filesystem::rename(temporary, file, problem);
  if (problem) return Error{"profiling: cannot rename " + temporary.string() + ": " + problem.message()};
  return {};
}

}  // namespace

Profiler::Profiler(Options options) : options_(std::move(options)), writer_([this] { run(); }) {}

Profiler::~Profiler() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  bell_.notify_one();
  writer_.join();
}

std::filesystem::path Profiler::file(const std::string& folder, Step step, const char* what) const {
  return options_.run_folder / folder / fmt::format("iteration_{}", step.value()) / fmt::format("rank{}_{}.json", options_.rank.value(), what);
}

void Profiler::step_ended(Step step) {
  const ProfilingSettings& settings = options_.settings;
  if (!settings.enable_profiling || options_.tracer == nullptr || !settings.due(step)) return;
  const auto active = static_cast<std::uint64_t>(settings.profiler_active);
  const Step first{step.value() >= active ? step.value() - active + 1 : 1};
  later([this, first, step, path = file(settings.save_traces_folder, step, "trace")]() -> Result<void> {
    const RankTrace trace = options_.tracer->snapshot(options_.rank, first, step);
    std::error_code none;
    std::filesystem::create_directories(path.parent_path(), none);
    return write_chrome_trace(std::span(&trace, 1), path);
  });
}

bool Profiler::wants_holders(Step step) { return options_.settings.enable_memory_snapshot && options_.settings.due(step); }

void Profiler::holders(Step step, std::span<const std::pair<ActorKind, std::string>> answers) {
  json told = json::object();
  for (const auto& [actor, text] : answers) told[name_of(actor)] = text;
  std::string text = fmt::format("{{\"rank\": {}, \"step\": {}, {},\n\"holders\": {}}}\n", options_.rank.value(), step.value(), options_.layout,
                                 told.dump(1, ' ', false, json::error_handler_t::replace));
  later([text = std::move(text), path = file(options_.settings.save_memory_snapshot_folder, step, "memory_snapshot")] {
    std::error_code none;
    std::filesystem::create_directories(path.parent_path(), none);
    return write_whole(path, text);
  });
}

void Profiler::later(std::function<Result<void>()> work) {
  {
    const std::lock_guard lock(mutex_);
    due_.push_back(std::move(work));
  }
  bell_.notify_one();
}

void Profiler::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    bell_.wait(lock, [this] { return over_ || !due_.empty(); });
    if (due_.empty()) return;
    const auto work = std::move(due_.front());
    due_.pop_front();
    lock.unlock();
    if (auto written = work(); !written) options_.log->warning(written.error().message);
    lock.lock();
  }
}

std::string memory_layout_json(const TrainingEstimate& estimate, const EdgeLayout& edges) {
  json planned = json::array(), buffers = json::array(), slots = json::array();
  for (const MemoryItem& item : estimate.memory)
    if (!item.per_slot) planned.push_back({{"kind", item.kind}, {"bytes", item.bytes}});
  for (const TapeBuffer& buffer : estimate.tapes.buffers)
    buffers.push_back({{"name", buffer.name},
                       {"kind", name_of(buffer.kind)},
                       {"dtype", name_of(buffer.dtype)},
                       {"rows", buffer.rows},
                       {"cols", buffer.cols},
                       {"offset", buffer.offset},
                       {"bytes", buffer.bytes},
                       {"first", buffer.first},
                       {"last", buffer.last},
                       {"saved", buffer.saved}});
  for (const EdgeLayout::Region& region : edges.regions)
    slots.push_back({{"edge", name_of(region.edge)},
                     {"slots", region.slots},
                     {"slot_bytes", region.slot_bytes},
                     {"stride", region.stride},
                     {"offset", region.offset},
                     {"placement", region.placement == Placement::host ? "host" : "device"}});
  const json arena{{"bytes", estimate.tapes.arena_bytes}, {"peak_bytes", estimate.tapes.peak_bytes}, {"buffers", buffers}};
  return fmt::format("\n\"planned\": {},\n\"arena\": {},\n\"edges\": {}", planned.dump(), arena.dump(), slots.dump());
}

}  // namespace troupe
