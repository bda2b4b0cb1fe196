// troupe trace: the timelines of a run's ranks as one file, one page, or a report.
#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "src/config/job_config.hpp"
#include "src/trace/chrome_trace.hpp"
#include "src/trace/report.hpp"
#include "tools/commands/ask.hpp"
#include "tools/commands/commands.hpp"
#include "tools/foresight/slot_replay.hpp"
#include "tools/launcher/live_traces.hpp"
#include "tools/launcher/run_folder.hpp"
#include "tools/launcher/training_job.hpp"
#include "tools/web/page.hpp"
#include "tools/web/timeline_page.hpp"

namespace troupe {
namespace {

using Steps = std::optional<std::pair<Step, Step>>;
constexpr std::chrono::seconds patience{20};  ///< for the processes of a live run to write their timelines

int fail(const Error& error, int code = exit_failed) {
  std::fprintf(stderr, "troupe trace: %s\n", error.message.c_str());
  return code;
}

/// "7" or "3..9".
Result<Steps> steps_of(const std::string& text) {
  if (text.empty()) return Steps{};
  const std::size_t dots = text.find("..");
  const std::string first = text.substr(0, dots), last = dots == std::string::npos ? first : text.substr(dots + 2);
  std::uint64_t from = 0, until = 0;
  const auto number = [](const std::string& digits, std::uint64_t& value) {
    const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return problem == std::errc{} && end == digits.data() + digits.size();
  };
  if (!number(first, from) || !number(last, until) || from == 0 || until < from)
    return Error{fmt::format("--steps {}: expected a step or two, as 7 or 3..9, counted from 1", text)};
  return Steps{std::pair{Step{from}, Step{until}}};
}

/// Of a run's folder; of a live run, as it is now. `code`: what to exit with after an error.
Result<RunTimeline> timeline_of(const std::filesystem::path& run, const Steps& steps, int& code) {
  code = exit_usage;
  LiveTraces live;
  std::vector<std::filesystem::path> files;
  std::error_code problem;
  if (read_control(run)) {
    const auto asked = [&](const std::string& request) {
      const auto answer = ask(run, nlohmann::json::parse(request));
      return answer ? answer->dump() : nlohmann::json{{"error", answer.error().message}}.dump();
    };
    if (auto recorded = live.record(asked, patience)) files = *recorded;  // else it has ended, and its control.json was left behind
    if (!live.missing().empty())
      std::fprintf(stderr, "troupe trace: not written within %lld s, and left out: %s\n", static_cast<long long>(patience.count()), live.missing().c_str());
  }
  const std::filesystem::path folder = run / "trace";
  if (files.empty()) {
    if (!std::filesystem::is_directory(folder, problem))
      return Error{fmt::format("{}: no such folder; RUN is a run's folder (job.dump_folder), and a run with trace.enable = true writes its timelines there",
                               folder.string())};
    files = rank_traces(folder);
  }
  if (files.empty() || (files.size() == 1 && files.front().filename() == launcher_trace))
    return Error{fmt::format("{} holds no rank-N.json: each rank writes its own as the run ends; one that was killed leaves none", folder.string())};
  code = exit_failed;
  return read_run_timeline(files, steps);
}

std::size_t ranks_in(const RunTimeline& timeline) {
  std::size_t ranks = 0;
  for (const RankTrace& rank : timeline.ranks) ranks += rank.rank == launcher_clock ? 0 : 1;
  return ranks;
}

/// Slots and their sizes by the run's configuration at this step; none where it cannot be read.
std::vector<EdgeSlots> edges_of_run(const JobConfig& config, std::uint32_t ranks) {
  const auto job = plan_training(config, 0, ranks);
  if (!job) return {};
  std::vector<EdgeSlots> edges;
  for (const EdgeLayout::Region& region : edges_of(*job, estimate_training(job->model, job->options)).regions)
    edges.push_back({name_of(region.edge), region.slots, region.stride});
  return edges;
}

Result<TraceReport> report_of_run(const std::filesystem::path& run, const Steps& steps, int& code) {
  const auto timeline = timeline_of(run, {}, code);
  if (!timeline) return timeline.error();
  const auto waits = report_of(*timeline, steps);
  if (!waits) return waits;
  const auto ranks = static_cast<std::uint32_t>(ranks_in(*timeline));
  const auto config = config_of_run(run, waits->last, ranks);
  if (!config) {
    std::fprintf(stderr, "troupe trace: what slots would gain and take is not known: %s\n", config.error().message.c_str());
    return waits;
  }
  RunProfile profile{.config = *config, .ranks = ranks, .spans = {}, .step_seconds = seconds_of(waits->step_time)};
  for (const RankTrace& rank : timeline->ranks) {
    if (rank.rank == launcher_clock) continue;
    for (TracedSpan& span : spans_of(rank))
      if (span.step >= waits->first && span.step <= waits->last) profile.spans.push_back(std::move(span));
  }
  auto replay = replay_slots(profile, cluster_of_run(*config));
  if (!replay) std::fprintf(stderr, "troupe trace: what slots would gain is not known: %s\n", replay.error().message.c_str());
  return report_of(*timeline, steps, edges_of_run(*config, ranks), replay ? std::optional(std::move(*replay)) : std::nullopt);
}

Result<void> write_file(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::path temporary = file;
  temporary += ".tmp";
  {
    std::ofstream out(temporary, std::ios::binary);
    out << text;
    out.flush();
    if (!out) return Error{"cannot write " + temporary.string() + ": see whether its folder exists and the disk has room"};
  }
  std::error_code problem;
  std::filesystem::rename(temporary, file, problem);
  if (problem) return Error{"cannot rename " + temporary.string() + " to " + file.string() + ": " + problem.message()};
  return {};
}

int report(const TraceRequest& request, const Steps& steps) {
  int code = exit_failed;
  const auto made = report_of_run(request.run, steps, code);
  if (!made) return fail(made.error(), code);
  std::string text = request.json ? report_json(*made) : report_text(*made);
  std::string page_data = "{\"reports\":[" + report_json(*made) + "]";
  std::string names = nlohmann::json(request.run.string()).dump();
  if (!request.compare.empty()) {
    const auto other = report_of_run(request.compare, steps, code);
    if (!other) return fail(other.error(), code);
    text = request.json ? fmt::format("[{},\n{}]", report_json(*made), report_json(*other))
                        : compare_text(*made, *other, request.run.filename().string(), request.compare.filename().string());
    page_data = "{\"reports\":[" + report_json(*made) + "," + report_json(*other) + "]";
    names += "," + nlohmann::json(request.compare.string()).dump();
  }
  if (request.html.empty()) {
    std::printf("%s%s", text.c_str(), text.ends_with('\n') ? "" : "\n");
    return exit_done;
  }
  std::string page = whole_page("report");
  put_json(page, "report-data", page_data + ",\"names\":[" + names + "]}");
  if (auto written = write_file(request.html, page); !written) return fail(written.error());
  std::printf("report: %s\n", request.html.c_str());
  return exit_done;
}

}  // namespace

int trace_run(const TraceRequest& request) {
  const auto steps = steps_of(request.steps);
  if (!steps) return fail(steps.error(), exit_usage);
  if (request.report) return report(request, *steps);
  int code = exit_failed;
  const auto timeline = timeline_of(request.run, *steps, code);
  if (!timeline) return fail(timeline.error(), code);
  const std::string clocks = describe(timeline->clocks);
  if (!request.html.empty()) {
    if (auto written = write_file(request.html, timeline_page(*timeline, request.run.string())); !written) return fail(written.error());
    std::printf("timeline of %zu ranks: %s (open it in a browser)\n%s", ranks_in(*timeline), request.html.c_str(), clocks.c_str());
    if (request.out.empty()) return exit_done;
  }
  const std::filesystem::path out = request.out.empty() ? request.run / "trace" / "trace.json" : request.out;
  if (auto written = write_chrome_trace(timeline->ranks, out, timeline->clocks); !written) return fail(written.error());
  std::printf("timeline of %zu ranks: %s (open it in https://ui.perfetto.dev)\n%s", ranks_in(*timeline), out.c_str(),
              request.html.empty() ? clocks.c_str() : "");
  return exit_done;
}

}  // namespace troupe
