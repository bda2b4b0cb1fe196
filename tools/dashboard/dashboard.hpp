#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "src/base/log.hpp"
#include "src/base/result.hpp"
#include "tools/launcher/step_times.hpp"

namespace troupe {

struct DashboardOptions {
  std::filesystem::path run_folder;                            ///< whose metrics.jsonl and journal.jsonl are shown
  std::uint16_t port = 0;                                      ///< 0: any free one
  std::string token;                                           ///< whoever knows it may look and change
  std::function<std::string(const std::string& request)> ask;  ///< what `troupe inspect`, `set` and `trace` ask; from any thread
  std::function<std::string()> settings;                       ///< live keys with their values now, a JSON object of TOML texts
  std::shared_ptr<const StepTimes> step_times;
};

/// A job's web page on the loopback interface, served by threads of its own, which wait for nobody: a job trains on whatever the page does.
///   GET  /?token=…            the page, which keeps the token as a cookie of this host alone
///   GET  /api/state           what every rank is at, settings, times of the last steps by rank
///   GET  /api/history         all steps of the run, at most ?points= of them
///   GET  /api/journal         its newest lines
///   POST /api/set             {"changes": ["KEY=VALUE"], "dry_run": …}, with the token in the header X-Troupe-Token
///   GET  /timeline?steps=N    waits for N more steps, then the timeline's page of them; 429 while another request waits for its steps
///   GET  /metrics             Prometheus' text format; without the token, for it has numbers alone
/// Requests whose Host is not the loopback's are refused: no other site's page can reach it through a browser.
class Dashboard {
 public:
  /// Listens before it returns; a port in use is an error that names it.
  [[nodiscard]] static Result<std::unique_ptr<Dashboard>> start(DashboardOptions options, Log& log);
  virtual ~Dashboard() = default;
  /// With the token.
  [[nodiscard]] virtual std::string url() const = 0;
};

}  // namespace troupe
