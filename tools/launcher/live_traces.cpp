#include "tools/launcher/live_traces.hpp"

#include <nlohmann/json.hpp>
#include <thread>

#include "src/trace/chrome_trace.hpp"

namespace troupe {

LiveTraces::~LiveTraces() {
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

Result<std::vector<std::filesystem::path>> LiveTraces::record(const std::function<std::string(const std::string& request)>& ask,
                                                              std::chrono::milliseconds patience) {
  const auto answer = nlohmann::json::parse(ask(R"({"ask": "trace"})"), nullptr, false);
  if (answer.is_discarded()) return Error{"the run's answer cannot be read: another version of troupe?"};
  if (answer.contains("error")) return Error{answer["error"].get<std::string>()};
  if (!answer.contains("folder") || !answer.contains("files")) return Error{"the run's answer names no folder: another version of troupe?"};
  const std::filesystem::path folder = answer.at("folder").get<std::string>();
  // What answers is what the run's folder names, and the folder is removed afterwards: none but one that a run makes for this.
  if (folder.parent_path().filename() != "trace" || !folder.filename().string().starts_with("live-"))
    return Error{"the run names " + folder.string() + " as the folder of its timeline, which no run does: the answer is not used"};
  folder_ = folder;
  const auto wanted = answer.at("files").get<std::vector<std::string>>();
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (true) {
    missing_.clear();
    for (const std::string& file : wanted) {
      if (!std::filesystem::exists(folder_ / file)) missing_ += (missing_.empty() ? "" : ", ") + file;
    }
    if (missing_.empty() || std::chrono::steady_clock::now() > deadline) return rank_traces(folder_);
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
  }
}

}  // namespace troupe
