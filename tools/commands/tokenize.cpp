#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <thread>

#include "src/config/job_config.hpp"
#include "src/data/loader.hpp"
#include "src/data/open_documents.hpp"
#include "src/data/token_shards.hpp"
#include "src/metrics/progress_bar.hpp"
#include "tools/commands/commands.hpp"
#include "tools/launcher/signals.hpp"

namespace troupe {
namespace {

Result<void> make_shards(const JobConfig& config, const std::shared_ptr<const Tokenizer>& tokenizer, const RecordEncoding& encoding,
                         const TokenizeRequest& request, const SignalQueue& signals) {
  const auto clock = make_system_clock();
  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  const auto write = [](std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); };
  Result<std::shared_ptr<const Corpus>> corpus = Error{};
  {
    ProgressBar indexing("indexing text", "MiB", 1048576, terminal, *clock, write);
    CorpusOptions options = corpus_options(config.data);
    options.index_folder = (request.folder / "index").string();
    options.progress = [&](std::uint64_t done, std::uint64_t total) { indexing.update(done, total); };
    corpus = Corpus::open(options);
  }
  if (!corpus) return corpus.error();
  const CorpusFacts& found = (*corpus)->facts();
  if (found.broken_records > 0)
    std::fprintf(stderr, "%llu broken records are left out%s%s\n", static_cast<unsigned long long>(found.broken_records),
                 found.first_broken.empty() ? "" : "; the first: ", found.first_broken.c_str());
  ProgressBar bar("tokenizing", "MiB", 1048576, terminal, *clock, write);
  std::atomic<bool> stopped{false};
  TokenizeOptions options{.folder = request.folder};
  options.threads = request.threads > 0 ? request.threads : std::max(1U, std::thread::hardware_concurrency());
  options.encoding = encoding;
  options.part_bytes = std::max<std::uint64_t>(request.part_mib, 1) << 20U;
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    bar.update(done, total);
    if (signals.next()) stopped = true;
  };
  options.stop = [&] { return stopped.load(); };
  const Nanos begin = clock->now();
  const auto made = tokenize_corpus(*corpus, tokenizer, options);
  if (!made) return made.error();
  const double seconds = std::max(1e-9, std::chrono::duration<double>(clock->now() - begin).count());
  std::printf("%s", fmt::format("{}: {} documents, {} tokens ({:.2f} bytes each), {} shards{}, {:.1f} s\n", request.folder.string(), made->documents,
                                made->tokens, static_cast<double>(made->text_bytes) / static_cast<double>(std::max<std::uint64_t>(made->tokens, 1)),
                                made->shards, made->kept > 0 ? fmt::format(" ({} made before)", made->kept) : "", seconds)
                        .c_str());
  if (made->special > 0)
    std::printf("%s", fmt::format("the texts spell {} special tokens: {} (data.special_tokens_in_text)\n", made->special,
                                  encoding.special_in_text ? "they are those tokens" : "they are text like any other")
                          .c_str());
  return {};
}

}  // namespace

int tokenize(const TokenizeRequest& request) {
  const auto failed = [](const std::string& why, int code) {
    std::fprintf(stderr, "troupe tokenize: %s\n", why.c_str());
    return code;
  };
  const SignalQueue signals({SIGINT, SIGTERM});
  const auto config = JobConfig::load(request.config, request.overrides);
  if (!config) return failed(config.error().message, exit_usage);
  const auto how = document_options(config->data, config->model.hf_assets_path);
  if (!how) return failed(how.error().message, exit_usage);
  const auto& tokenizer = how->tokenizer;
  if (!tokenizer) return failed("model.hf_assets_path names no tokenizer; bytes as tokens need no shards", exit_usage);
  for (const std::string& warning : tokenizer->parts().warnings) std::fprintf(stderr, "warning: %s\n", warning.c_str());
  if (config->data.dataset == "tokens" || config->data.dataset == "megatron")
    return failed("training.dataset: \"" + config->data.dataset + "\" is tokens already; text, jsonl, parquet and arrow can be tokenized", exit_usage);
  if (!config->data.blend_weights.empty())
    return failed("data.blend_weights: shards are made of one source; call this once for each, with --training.dataset_path", exit_usage);
  if (auto made = make_shards(*config, tokenizer, how->encoding, request, signals); !made) return failed(made.error().message, exit_failed);
  return exit_done;
}

}  // namespace troupe
