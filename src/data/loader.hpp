#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/clock.hpp"
#include "src/data/blended_rows.hpp"
#include "src/data/corpus.hpp"
#include "src/data/row_sampler.hpp"
#include "src/data/settings.hpp"
#include "src/device/device.hpp"
#include "src/model/programs.hpp"

namespace troupe {

/// Which rows one rank loads. Rows of a step are dealt in turn: row j of the step goes to rank j mod ranks, so the rows of a step
/// are the same for every number of ranks with the same global batch. Where they do not fill the last micro-batch of every rank, what is
/// missing is padding: token 0, no valid label.
struct LoaderOptions {
  BatchLayout layout;                 ///< rows of a micro-batch
  SamplerOptions sampler;             ///< its seq_len is the layout's
  std::vector<double> blend = {};     ///< weights of the corpora, where there are several
  std::uint32_t rank = 0, ranks = 1;  ///< among the data-parallel ranks
  std::uint32_t micro_batches = 1;    ///< of a step, on each rank
  std::uint64_t global_rows = 0;      ///< of a step, on all ranks; 0: as many as the micro-batches hold
  Step first_step{1};                 ///< the step that begins with row `first_row`: 1 and 0 but after a change of the global batch
  std::uint64_t first_row = 0;
  /// Told of what the user should know though loading goes on: a slow read, with its file. On the loader's thread. May be empty.
  std::function<void(const std::string&)> warn = {};
  double slow_read_seconds = 5;
  const Clock* clock = nullptr;  ///< null: nothing is found slow
  ReadFile read_file = {};       ///< empty: pread
  Device* device = nullptr;      ///< whose memory batch slots are; outlives the loader. Null: they are the host's
  [[nodiscard]] std::uint64_t rows_per_step() const noexcept { return global_rows > 0 ? global_rows : std::uint64_t{layout.rows} * ranks * micro_batches; }
  /// Rows used before this step begins: the data position of a checkpoint of the step before.
  [[nodiscard]] std::uint64_t row_of(Step step) const noexcept { return first_row + (step.value() - first_step.value()) * rows_per_step(); }
  /// The global rows of one batch of this rank, in its order; nothing: padding.
  [[nodiscard]] std::vector<std::optional<std::uint64_t>> rows_of(Step step, Micro micro) const;
};

/// What records hold.
[[nodiscard]] RecordRules record_rules(const DataSettings& settings);
/// Which of the files and their form are read: the training's, or the validation's.
[[nodiscard]] CorpusOptions corpus_options(const DataSettings& settings);
/// One for each source: each entry of dataset_path with data.blend_weights, else all files together.
[[nodiscard]] std::vector<CorpusOptions> sources_of(const DataSettings& settings);
[[nodiscard]] CorpusOptions corpus_options(const DataSettings& how, const ValidationSettings& what);
[[nodiscard]] SamplerOptions sampler_options(const DataSettings& settings, std::int64_t seed, std::int64_t seq_len);

/// The rows of one pass over the validation set that a validation takes, dealt as those of a step; what does not fill the last batch is padding.
/// Their order is that of the files; a rest of less than seq_len positions is left out. micro_batches: of each rank; 0: the data is too little.
[[nodiscard]] LoaderOptions validation_loader_options(const TokenDocuments& documents, const DataSettings& how, const ValidationSettings& what,
                                                      std::uint32_t rank, std::uint32_t ranks);

/// Micro-batches from `micro_batches` on, of any step, are those of the validation set: always the same ones.
[[nodiscard]] std::shared_ptr<LoaderProgram> with_validation(std::shared_ptr<LoaderProgram> training, std::shared_ptr<LoaderProgram> validation,
                                                             std::uint32_t micro_batches);

/// The data loader of one rank. Throws std::invalid_argument when rank >= ranks, a count is 0 or the micro-batches cannot hold the rows.
/// Where the host does not see the device's memory, rows are put together in a pinned buffer and uploaded: `load` ends with the upload.
/// Its `load` throws std::runtime_error naming file and byte.
[[nodiscard]] std::unique_ptr<LoaderProgram> make_loader(const Corpora& corpora, const LoaderOptions& options);
/// Of one corpus whose bytes are its tokens.
[[nodiscard]] inline std::unique_ptr<LoaderProgram> make_loader(const std::shared_ptr<const Corpus>& corpus, const LoaderOptions& options) {
  return make_loader(Corpora{byte_documents(corpus)}, options);
}

}  // namespace troupe
