#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <stdexcept>

#include "src/base/passing_folder.hpp"
#include "src/data/byte_tokenizer.hpp"
#include "src/runtime/join_digests.hpp"
#include "tools/commands/commands.hpp"
#include "tools/launcher/job_data.hpp"
#include "tools/worker/terminal_text.hpp"

namespace troupe {
namespace {

std::string numbers(std::span<const std::int32_t> values) {
  std::string text;
  for (const std::int32_t value : values) text += fmt::format(" {}", value);
  return text;
}

std::string text_of(std::span<const std::int32_t> tokens, const Tokenizer* tokenizer) {
  if (tokenizer != nullptr) return terminal_text(tokenizer->decode(tokens, false));
  std::string text;
  for (const std::int32_t token : tokens) {
    if (token == ByteTokenizer::bos || token == ByteTokenizer::eos)
      text += token == ByteTokenizer::bos ? "<bos>" : "<eos>";
    else
      text += static_cast<char>(token);
  }
  return terminal_text(text);
}

/// What a rank gets in one step, as its loader gives it.
class Inspection {
 public:
  Inspection(Corpora corpora, std::shared_ptr<const Tokenizer> tokenizer, LoaderOptions options)
      : corpora_(std::move(corpora)), tokenizer_(std::move(tokenizer)), options_(std::move(options)), rows_(corpora_, options_.blend, of(options_)) {}

  /// The digest of the rank's step.
  std::uint64_t run(Step step, bool print) {
    std::vector<std::uint64_t> digests;
    const auto loader = make_loader(corpora_, options_);
    std::vector<std::int32_t> batch(options_.layout.bytes() / sizeof(std::int32_t));
    class : public Stream {
    } stream;
    for (Micro micro{0}; micro.value() < options_.micro_batches; ++micro) {
      const BatchFacts facts = loader->load(stream, step, micro, std::as_writable_bytes(std::span(batch)));
      digests.push_back(facts.digest);
      if (print) print_batch(step, micro, facts, batch);
    }
    return join_digests(digests);
  }

 private:
  static SamplerOptions of(const LoaderOptions& options) {
    SamplerOptions sampler = options.sampler;
    sampler.seq_len = options.layout.seq_len;
    return sampler;
  }
  void print_batch(Step step, Micro micro, const BatchFacts& facts, std::span<const std::int32_t> batch) {
    fmt::print("micro-batch {}: {} rows of {} tokens, {} valid targets\n", micro.value(), options_.layout.rows, options_.layout.seq_len, facts.valid_tokens);
    const auto rows = options_.rows_of(step, micro);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (!rows[i]) {
        fmt::print("  padding: the step has no row left for this place\n");
        continue;
      }
      const std::size_t length = options_.layout.seq_len, at = i * length;
      fmt::print("  row {}\n", *rows[i]);
      print_origin(rows_.origin(*rows[i]));
      fmt::print("    tokens{}\n    labels{}\n    text {}\n", numbers(batch.subspan(at, length)), numbers(batch.subspan(options_.layout.tokens() + at, length)),
                 text_of(batch.subspan(at, length), tokenizer_.get()));
    }
  }

  void print_origin(const BlendedRows::Origin& origin) const {
    if (corpora_.size() > 1) fmt::print("    source {}, its row {}\n", origin.source + 1, origin.row);
    for (const RowPiece& piece : origin.pieces)
      fmt::print("    pass {}, document {} ({}): its tokens {} to {}\n", piece.pass, piece.document, corpora_[origin.source]->place(piece.document),
                 piece.first, piece.first + piece.count - 1);
  }

  Corpora corpora_;
  std::shared_ptr<const Tokenizer> tokenizer_;  ///< null: bytes
  LoaderOptions options_;
  BlendedRows rows_;
};

Result<void> print_inspection(const InspectDataRequest& request, const JobConfig& config) {
  const Step step{request.step};
  const auto position = data_position_at(step, config);
  if (!position) return position.error();
  const std::uint32_t world = request.processes.value_or(position->world);
  if (request.rank >= world)
    return Error{fmt::format("--rank {}: the run has {} rank{}; ranks count from 0 (--nproc)", request.rank, world, world == 1 ? "" : "s")};
  std::vector<CorpusOptions> sources = sources_of(config.data);
  std::filesystem::path index = std::filesystem::path(config.job.dump_folder) / "index";
  std::optional<PassingFolder> passing;  // before the run has a folder for what is made of the data
  if (std::error_code none; !std::filesystem::exists(index, none)) {
    auto made = PassingFolder::make("inspect");
    if (!made) return made.error();
    index = passing.emplace(std::move(made).value()).path();
  }
  for (CorpusOptions& source : sources) source.index_folder = index.string();
  const auto how = document_options(config.data, config.model.hf_assets_path);
  if (!how) return how.error();
  const auto corpora = open_corpora(sources, *how);
  if (!corpora) return corpora.error();
  std::vector<std::uint64_t> digests;
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    LoaderOptions options = loader_options(position->config, rank, world);
    options.first_step = position->first_step;
    options.first_row = position->first_row;
    const bool asked = rank == request.rank;
    if (asked)
      fmt::print("step {}, rank {} of {}: {} micro-batch{} of a step of {} rows from row {} on\n", request.step, rank, world, options.micro_batches,
                 options.micro_batches == 1 ? "" : "es", options.rows_per_step(), options.row_of(step));
    digests.push_back(Inspection(*corpora, how->tokenizer, options).run(step, asked));
    if (asked) fmt::print("digest of this rank: {:016x}\n", digests.back());
  }
  fmt::print("digest of the step, as in metrics.jsonl: {:016x}\n", join_digests(digests));
  return {};
}

}  // namespace

int inspect_data(const InspectDataRequest& request) {
  const auto config = JobConfig::load(request.config, request.overrides);
  if (!config) {
    std::fprintf(stderr, "%s\n", config.error().message.c_str());
    return exit_usage;
  }
  try {
    if (auto printed = print_inspection(request, *config); !printed) {
      std::fprintf(stderr, "troupe data inspect: %s\n", printed.error().message.c_str());
      return exit_usage;
    }
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "troupe data inspect: %s\n", problem.what());
    return exit_failed;
  }
  return exit_done;
}

}  // namespace troupe
