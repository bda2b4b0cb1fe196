#include "src/data/loader.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>

#include "src/data/byte_tokenizer.hpp"

namespace troupe {
namespace {

DataFormat format_of(const std::string& dataset) {
  if (dataset == "tokens") return DataFormat::tokens;
  if (dataset == "megatron") return DataFormat::megatron;
  if (dataset == "parquet" || dataset == "arrow") return DataFormat::table;
  return dataset == "jsonl" ? DataFormat::jsonl : DataFormat::text;
}

/// Tells once of each file that is no longer what was indexed: what is read from it then is not what the index promised.
class ChangedFiles {
 public:
  explicit ChangedFiles(std::vector<DataFile> files) : files_(std::move(files)) {}
  void look(std::uint32_t file, int descriptor, const std::function<void(const std::string&)>& warn) {
    struct stat now {};
    const DataFile& then = files_[file];
    if (told_.contains(file) || fstat(descriptor, &now) != 0) return;
    const std::int64_t modified = std::int64_t{now.st_mtim.tv_sec} * 1000000000 + now.st_mtim.tv_nsec;
    if (then.content != then.path || (static_cast<std::uint64_t>(now.st_size) == then.bytes && modified == then.modified_nanos)) return;
    told_.insert(file);
    warn(
        fmt::format("data: {} was changed while the run reads it ({} bytes when it was indexed, {} now): batches from it are not those of the index, and a "
                    "run that is started again indexes it anew and sees other rows",
                    then.path, then.bytes, now.st_size));
  }

 private:
  std::vector<DataFile> files_;
  std::set<std::uint32_t> told_;
};

/// Reads as `options` say, and tells of a read that takes long and of a file that changes.
ReadFile watched_reads(const std::shared_ptr<const TokenDocuments>& documents, const LoaderOptions& options) {
  if (options.clock == nullptr || !options.warn) return options.read_file;
  ReadFile read = options.read_file;
  if (!read)
    read = [](std::uint32_t, int descriptor, std::span<char> out, std::uint64_t offset) {
      return pread(descriptor, out.data(), out.size(), static_cast<off_t>(offset));
    };
  const auto changed = std::make_shared<ChangedFiles>(documents->files());
  return [files = documents->files(), options, read, changed](std::uint32_t file, int descriptor, std::span<char> out, std::uint64_t offset) {
    const Nanos begin = options.clock->now();
    const ssize_t got = read(file, descriptor, out, offset);
    changed->look(file, descriptor, options.warn);
    const double seconds = std::chrono::duration<double>(options.clock->now() - begin).count();
    if (seconds > options.slow_read_seconds)
      options.warn(fmt::format("data: {} is slow: {} bytes at {} took {:.1f} s", files[file].path, out.size(), offset, seconds));
    return got;
  };
}

class CorpusLoader final : public LoaderProgram {
 public:
  CorpusLoader(const Corpora& corpora, const LoaderOptions& options)
      : options_(options), rows_(corpora, options.blend, options.sampler, [&options](const auto& documents) { return watched_reads(documents, options); }) {
    if (options_.device != nullptr && !options_.device->host_visible()) staging_ = options_.device->allocate(options_.layout.bytes(), Placement::host);
  }

  BatchFacts load(Stream& stream, Step step, Micro micro, std::span<std::byte> batch) override {
    const auto& layout = options_.layout;
    if (batch.size() < layout.bytes()) {
      throw std::invalid_argument("batch slot of " + std::to_string(batch.size()) + " bytes, " + std::to_string(layout.bytes()) + " are needed");
    }
    if (!staging_) return fill(step, micro, batch);
    const BatchFacts facts = fill(step, micro, staging_->bytes());
    options_.device->upload(stream, staging_->bytes(), batch.first(layout.bytes()));
    options_.device->wait(stream);  // the next batch is put together in the same buffer
    return facts;
  }

 private:
  /// `batch`: host memory.
  BatchFacts fill(Step step, Micro micro, std::span<std::byte> batch) {
    const auto& layout = options_.layout;
    const std::span<std::int32_t> values(reinterpret_cast<std::int32_t*>(batch.data()), layout.bytes() / sizeof(std::int32_t));
    BatchFacts facts;
    const auto rows = options_.rows_of(step, micro);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::size_t at = i * layout.seq_len;
      const auto tokens = values.subspan(at, layout.seq_len), labels = values.subspan(layout.tokens() + at, layout.seq_len);
      const auto starts = layout.documents ? values.subspan(2 * layout.tokens() + at, layout.seq_len) : std::span<std::int32_t>();
      if (rows[i]) {
        facts.valid_tokens += rows_.row(*rows[i], tokens, labels, starts);
        facts.digest += XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), *rows[i]);
      } else {
        std::ranges::fill(starts, 0);
        std::ranges::fill(tokens, 0);
        std::ranges::fill(labels, ignored_label);
      }
    }
    return facts;
  }

  LoaderOptions options_;
  BlendedRows rows_;
  std::unique_ptr<Buffer> staging_;
};

class LoaderOfBoth final : public LoaderProgram {
 public:
  LoaderOfBoth(std::shared_ptr<LoaderProgram> training, std::shared_ptr<LoaderProgram> validation, std::uint32_t micro_batches)
      : training_(std::move(training)), validation_(std::move(validation)), micro_batches_(micro_batches) {}
  BatchFacts load(Stream& stream, Step step, Micro micro, std::span<std::byte> batch) override {
    if (micro.value() < micro_batches_) return training_->load(stream, step, micro, batch);
    return validation_->load(stream, Step{1}, Micro{micro.value() - micro_batches_}, batch);
  }

 private:
  std::shared_ptr<LoaderProgram> training_, validation_;
  std::uint32_t micro_batches_;
};

}  // namespace

std::vector<std::optional<std::uint64_t>> LoaderOptions::rows_of(Step step, Micro micro) const {
  std::vector<std::optional<std::uint64_t>> rows;
  for (std::uint32_t i = 0; i < layout.rows; ++i) {
    const std::uint64_t turn = std::uint64_t{micro.value()} * layout.rows + i, row = turn * ranks + rank;
    rows.push_back(row < rows_per_step() ? std::optional(row_of(step) + row) : std::nullopt);
  }
  return rows;
}

RecordRules record_rules(const DataSettings& settings) {
  if (settings.records == "messages") return {RecordForm::messages, settings.text_key};
  return {settings.records == "prompt_completion" ? RecordForm::prompt_completion : RecordForm::text, settings.text_key};
}

CorpusOptions corpus_options(const DataSettings& settings) {
  CorpusOptions options;
  options.format = format_of(settings.dataset);
  options.skip_broken = settings.on_error == "skip";
  if (options.format != DataFormat::text) options.record = record_rules(settings);
  options.paths = settings.dataset_path;
  options.allow_binary = settings.allow_binary;
  options.unpack_limit_bytes = static_cast<std::uint64_t>(settings.unpack_limit_gib) << 30U;
  return options;
}

std::vector<CorpusOptions> sources_of(const DataSettings& settings) {
  const CorpusOptions all = corpus_options(settings);
  if (settings.blend_weights.empty()) return {all};
  std::vector<CorpusOptions> sources;
  for (const std::string& entry : source_entries(settings)) {
    sources.push_back(all);
    sources.back().paths = {entry};
    std::ranges::copy_if(all.paths, std::back_inserter(sources.back().paths), [](const std::string& path) { return path.starts_with('!'); });
  }
  return sources;
}

CorpusOptions corpus_options(const DataSettings& how, const ValidationSettings& what) {
  CorpusOptions options = corpus_options(how);
  options.format = format_of(what.dataset);
  options.record = options.format == DataFormat::text ? RecordRules{} : record_rules(how);
  options.paths = what.dataset_path;
  options.section = "validation";
  return options;
}

LoaderOptions validation_loader_options(const TokenDocuments& documents, const DataSettings& how, const ValidationSettings& what, std::uint32_t rank,
                                        std::uint32_t ranks) {
  LoaderOptions options;
  options.layout = {static_cast<std::uint32_t>(what.local_batch_size), static_cast<std::uint32_t>(what.seq_len), how.isolate_documents};
  options.sampler = sampler_options(how, 0, what.seq_len);
  options.sampler.shuffle = false;
  options.rank = rank;
  options.ranks = ranks;
  const std::uint64_t at_once = std::uint64_t{options.layout.rows} * ranks;
  options.global_rows = positions_of_pass(documents, options.sampler) / options.layout.seq_len;
  if (what.steps > 0) options.global_rows = std::min(options.global_rows, static_cast<std::uint64_t>(what.steps) * at_once);
  options.micro_batches = static_cast<std::uint32_t>((options.global_rows + at_once - 1) / at_once);
  return options;
}

std::shared_ptr<LoaderProgram> with_validation(std::shared_ptr<LoaderProgram> training, std::shared_ptr<LoaderProgram> validation,
                                               std::uint32_t micro_batches) {
  return std::make_shared<LoaderOfBoth>(std::move(training), std::move(validation), micro_batches);
}

SamplerOptions sampler_options(const DataSettings& settings, std::int64_t seed, std::int64_t seq_len) {
  return {.seed = static_cast<std::uint64_t>(seed),
          .shuffle = settings.shuffle,
          .add_bos = settings.add_bos,
          .add_eos = settings.add_eos,
          .mask_document_boundaries = settings.mask_document_boundaries,
          .seq_len = static_cast<std::uint32_t>(seq_len)};
}

std::unique_ptr<LoaderProgram> make_loader(const Corpora& corpora, const LoaderOptions& options) {
  if (options.rank >= options.ranks) {
    throw std::invalid_argument("data loader: rank " + std::to_string(options.rank) + " of " + std::to_string(options.ranks) + " ranks; ranks count from 0");
  }
  if (options.layout.rows == 0 || options.layout.seq_len == 0 || options.micro_batches == 0)
    throw std::invalid_argument("data loader: rows, seq_len and micro_batches must be at least 1");
  if (options.global_rows > std::uint64_t{options.layout.rows} * options.ranks * options.micro_batches)
    throw std::invalid_argument("data loader: " + std::to_string(options.micro_batches) + " micro-batches of " + std::to_string(options.layout.rows) +
                                " rows on " + std::to_string(options.ranks) + " ranks cannot hold " + std::to_string(options.global_rows) + " rows a step");
  LoaderOptions checked = options;
  checked.sampler.seq_len = options.layout.seq_len;
  return std::make_unique<CorpusLoader>(corpora, checked);
}

}  // namespace troupe
