#include <cstdio>

#include "src/trace/chrome_trace.hpp"
#include "tools/commands/commands.hpp"

namespace troupe {

int merge_run_trace(const TraceRequest& request) {
  const std::filesystem::path folder = request.run / "trace";
  std::error_code problem;
  if (!std::filesystem::is_directory(folder, problem)) {
    std::fprintf(stderr, "%s: no such folder; RUN is a run's folder (job.dump_folder), and trace.enable = true makes the run write its timelines there\n",
                 folder.c_str());
    return exit_usage;
  }
  const auto files = rank_traces(folder);
  if (files.empty()) {
    std::fprintf(stderr, "%s holds no rank-N.json: each rank writes its own as the run ends; one that was killed leaves none\n", folder.c_str());
    return exit_usage;
  }
  const std::filesystem::path out = request.out.empty() ? folder / "trace.json" : request.out;
  if (const auto written = merge_traces(files, out); !written) {
    std::fprintf(stderr, "%s\n", written.error().message.c_str());
    return exit_failed;
  }
  std::printf("timeline of %zu ranks: %s (open it in https://ui.perfetto.dev)\n", files.size(), out.c_str());
  return exit_done;
}

}  // namespace troupe
