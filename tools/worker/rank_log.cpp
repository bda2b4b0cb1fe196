#include "tools/worker/rank_log.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <ctime>

namespace troupe {
namespace {

constexpr int launcher_stdout = 3, launcher_stderr = 4;
constexpr int patience_ms = 1000;  ///< for a reader that is slow

class RankLog final : public Log {
 public:
  explicit RankLog(const RankLogOptions& options) : options_(options), who_(fmt::format("rank {}", options.rank.value())) {
    if (!options.file.empty()) file_ = make_log(LogOptions{.who = who_, .file = options.file.string(), .console = false});
  }
  void write(LogLevel level, std::string_view text) override {
    if (file_) file_->write(level, text);
    const bool grave = level == LogLevel::warning || level == LogLevel::error;
    if (!grave && (!options_.shown || level == LogLevel::debug)) return;
    const auto now = std::chrono::system_clock::now();
    const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
    const char* name = level == LogLevel::error ? "error" : grave ? "warning" : "info";
    const std::string line = fmt::format("[troupe] {:%Y-%m-%d %H:%M:%S}.{:03} - {} - {} - {}\n", fmt::localtime(std::chrono::system_clock::to_time_t(now)),
                                         milliseconds, who_, name, text);
    const int console = options_.launched ? (grave ? launcher_stderr : launcher_stdout) : grave ? STDERR_FILENO : STDOUT_FILENO;
    pollfd room{console, POLLOUT, 0};  // a console that nobody reads holds up no rank: the line stands in the file
    if (::poll(&room, 1, unread_ ? 0 : patience_ms) == 0) {
      unread_ = true;
      return;
    }
    unread_ = false;
    [[maybe_unused]] const auto written = ::write(console, line.data(), line.size());  // one call: lines of several processes do not mix
  }

 private:
  RankLogOptions options_;
  std::string who_;
  std::unique_ptr<Log> file_;
  std::atomic<bool> unread_ = false;  ///< the last line found no room
};

}  // namespace

std::unique_ptr<Log> make_rank_log(const RankLogOptions& options) { return std::make_unique<RankLog>(options); }

}  // namespace troupe
