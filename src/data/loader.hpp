#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/clock.hpp"
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

[[nodiscard]] CorpusOptions corpus_options(const DataSettings& settings);
[[nodiscard]] SamplerOptions sampler_options(const DataSettings& settings, std::int64_t seed, std::int64_t seq_len);

/// The data loader of one rank. Throws std::invalid_argument when rank >= ranks, a count is 0 or the micro-batches cannot hold the rows.
/// Where the host does not see the device's memory, rows are put together in a pinned buffer and uploaded: `load` ends with the upload.
/// Its `load` throws std::runtime_error naming file and byte.
[[nodiscard]] std::unique_ptr<LoaderProgram> make_loader(const std::shared_ptr<const Corpus>& corpus, const LoaderOptions& options);

}  // namespace troupe
