#pragma once
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "actors/step_observer.hpp"
#include "src/base/log.hpp"
#include "src/base/result.hpp"
#include "src/model/training_model.hpp"
#include "src/runtime/edge_memory.hpp"
#include "src/trace/settings.hpp"

namespace troupe {

class RingTracer;

/// [profiling] of one rank: at the steps asked for it writes the newest part of the rank's timeline and a picture of its memory, on a thread
/// of its own. What could not be written is a warning; the destructor writes what is still due.
class Profiler final : public StepObserver {
 public:
  struct Options {
    ProfilingSettings settings;
    std::filesystem::path run_folder;
    Rank rank;
    RingTracer* tracer = nullptr;  ///< outlives this; null: no timelines
    Log* log = nullptr;            ///< outlives this
    std::string layout;            ///< members of a JSON object that say what was planned, see memory_layout_json
  };
  explicit Profiler(Options options);
  ~Profiler() override;
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;
  void step_ended(Step step) override;
  [[nodiscard]] bool wants_holders(Step step) override;
  void holders(Step step, std::span<const std::pair<ActorKind, std::string>> answers) override;

 private:
  [[nodiscard]] std::filesystem::path file(const std::string& folder, Step step, const char* what) const;
  void later(std::function<Result<void>()> work);
  void run();

  Options options_;
  std::mutex mutex_;
  std::condition_variable bell_;
  std::deque<std::function<Result<void>()>> due_;
  bool over_ = false;
  std::thread writer_;
};

/// `"planned": […], "arena": {…}, "edges": […]`: memory by kind, every buffer of the arena (name, kind, type, shape, offset, bytes, first and last
/// instruction), the slots of each edge.
[[nodiscard]] std::string memory_layout_json(const TrainingEstimate& estimate, const EdgeLayout& edges);

}  // namespace troupe
