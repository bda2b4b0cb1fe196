#include "src/base/log.hpp"

#include <poll.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace troupe {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return spdlog::level::debug;
    case LogLevel::info: return spdlog::level::info;
    case LogLevel::warning: return spdlog::level::warn;
    case LogLevel::error: return spdlog::level::err;
  }
  return spdlog::level::info;
}

/// Standard output, unless whoever reads it has stopped doing so: a paused pager or a terminal held by Ctrl-S must not hold up the run.
/// Such a reader is waited for once, for a second; then lines are left out until there is room again, and their number is told.
class PatientConsole final : public spdlog::sinks::sink {
 public:
  explicit PatientConsole(bool colour)
      : inner_(colour ? std::shared_ptr<spdlog::sinks::sink>(std::make_shared<spdlog::sinks::stdout_color_sink_mt>())
                      : std::make_shared<spdlog::sinks::stdout_sink_mt>()) {}
  void log(const spdlog::details::log_msg& message) override {
    const std::lock_guard lock(mutex_);
    if (!has_room(left_out_ == 0 ? patience_ms : 0)) {
      ++left_out_;
      return;
    }
    if (const std::size_t count = std::exchange(left_out_, 0); count > 0) {
      const std::string text = std::to_string(count) + " lines are left out here, for nobody read them; the files in the run's logs have all";
      inner_->log(spdlog::details::log_msg(message.logger_name, spdlog::level::warn, text));
    }
    inner_->log(message);
  }
  void flush() override { inner_->flush(); }
  void set_pattern(const std::string& pattern) override { inner_->set_pattern(pattern); }
  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override { inner_->set_formatter(std::move(formatter)); }

 private:
  static constexpr int patience_ms = 1000;
  /// A pipe that polls as writable takes a page without blocking, and our lines are shorter.
  static bool has_room(int wait_ms) {
    pollfd out{STDOUT_FILENO, POLLOUT, 0};
    return ::poll(&out, 1, wait_ms) != 0;
  }
  std::mutex mutex_;
  std::shared_ptr<spdlog::sinks::sink> inner_;
  std::size_t left_out_ = 0;
};

class SpdlogLog final : public Log {
 public:
  explicit SpdlogLog(const LogOptions& options) : logger_("troupe") {
    auto& sinks = logger_.sinks();
    if (options.console) sinks.push_back(std::make_shared<PatientConsole>(options.colour));
    if (!options.file.empty()) sinks.push_back(std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file));
    logger_.set_pattern("[troupe] %Y-%m-%d %H:%M:%S.%e - " + options.who + " - %^%l%$ - %v");
    logger_.set_level(to_spdlog(options.level));
    logger_.flush_on(spdlog::level::info);
  }
  void write(LogLevel level, std::string_view text) override { logger_.log(to_spdlog(level), "{}", text); }

 private:
  spdlog::logger logger_;
};

class NullLog final : public Log {
 public:
  void write(LogLevel, std::string_view) override {}
};

}  // namespace

std::unique_ptr<Log> make_log(const LogOptions& options) { return std::make_unique<SpdlogLog>(options); }
std::unique_ptr<Log> make_null_log() { return std::make_unique<NullLog>(); }

}  // namespace troupe
