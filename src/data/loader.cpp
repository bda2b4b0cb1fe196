#include "src/data/loader.hpp"

#include <xxhash.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "src/data/byte_tokenizer.hpp"

namespace troupe {
namespace {

class CorpusLoader final : public LoaderProgram {
 public:
  CorpusLoader(std::shared_ptr<const Corpus> corpus, const LoaderOptions& options) : options_(options), sampler_(std::move(corpus), options.sampler) {
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
    const std::span<std::int32_t> values(reinterpret_cast<std::int32_t*>(batch.data()), layout.tokens() * 2);
    BatchFacts facts;
    for (std::uint32_t i = 0; i < layout.rows; ++i) {
      const std::uint64_t turn = std::uint64_t{micro.value()} * layout.rows + i;
      const std::uint64_t row = turn * options_.ranks + options_.rank;
      const std::size_t at = std::size_t{i} * layout.seq_len;
      const auto tokens = values.subspan(at, layout.seq_len), labels = values.subspan(layout.tokens() + at, layout.seq_len);
      if (row < options_.rows_per_step()) {
        facts.valid_tokens += sampler_.row(options_.row_of(step) + row, tokens, labels);
      } else {
        std::ranges::fill(tokens, 0);
        std::ranges::fill(labels, ignored_label);
      }
    }
    facts.digest = XXH3_64bits(values.data(), layout.tokens() * sizeof(std::int32_t));
    return facts;
  }

  LoaderOptions options_;
  RowSampler sampler_;
  std::unique_ptr<Buffer> staging_;
};

}  // namespace

CorpusOptions corpus_options(const DataSettings& settings) {
  CorpusOptions options;
  options.format = settings.dataset == "jsonl" ? DataFormat::jsonl : DataFormat::text;
  options.paths = settings.dataset_path;
  options.allow_binary = settings.allow_binary;
  return options;
}

SamplerOptions sampler_options(const DataSettings& settings, std::int64_t seed, std::int64_t seq_len) {
  return {.seed = static_cast<std::uint64_t>(seed),
          .shuffle = settings.shuffle,
          .add_bos = settings.add_bos,
          .add_eos = settings.add_eos,
          .mask_document_boundaries = settings.mask_document_boundaries,
          .seq_len = static_cast<std::uint32_t>(seq_len)};
}

std::unique_ptr<LoaderProgram> make_loader(std::shared_ptr<const Corpus> corpus, const LoaderOptions& options) {
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
  return std::make_unique<CorpusLoader>(std::move(corpus), checked);
}

}  // namespace troupe
