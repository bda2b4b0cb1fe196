#pragma once
#include <arrow/record_batch.h>
#include <arrow/result.h>

#include <memory>
#include <string>
#include <vector>

namespace troupe {

/// The rows of one open file, batch by batch, columns alone that were asked for.
class TableRows {
 public:
  virtual ~TableRows() = default;
  /// Null behind the last. Every length, offset and text of a batch is checked.
  virtual arrow::Result<std::shared_ptr<arrow::RecordBatch>> next() = 0;
  /// Of the rows, or batches, that there are.
  [[nodiscard]] virtual double done() const = 0;
};

/// Opens a Parquet file, or an Arrow file or stream, as its first bytes say. Errors say what is wrong, not in which file.
arrow::Result<std::unique_ptr<TableRows>> open_table(const std::string& path, const std::vector<std::string>& columns);

}  // namespace troupe
