#include "src/base/log.hpp"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

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

class SpdlogLog final : public Log {
 public:
  explicit SpdlogLog(const LogOptions& options) : logger_("troupe") {
    auto& sinks = logger_.sinks();
    if (options.console) {
      if (options.colour)
        sinks.push_back(std::make_shared<spdlog::sinks::stdout_color_sink_mt>());
      else
        sinks.push_back(std::make_shared<spdlog::sinks::stdout_sink_mt>());
    }
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
