#include "src/data/parquet/table_rows.hpp"

#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/type.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>

#include <array>
#include <numeric>
#include <string_view>

namespace troupe {
namespace {

using Batch = std::shared_ptr<arrow::RecordBatch>;
constexpr std::int64_t batch_rows = 1024;

/// Where each wanted column stands among those of the file.
arrow::Result<std::vector<int>> find_columns(const arrow::Schema& schema, const std::vector<std::string>& wanted) {
  std::vector<int> found;
  for (const std::string& name : wanted) {
    const std::vector<int> places = schema.GetAllFieldIndices(name);
    std::string all;
    for (const auto& field : schema.fields()) all += (all.empty() ? "" : ", ") + field->name();
    if (places.empty()) return arrow::Status::KeyError("has no column \"", name, "\"; its columns are ", all);
    if (places.size() > 1) return arrow::Status::KeyError("has ", places.size(), " columns of the name \"", name, "\"");
    found.push_back(places.front());
  }
  return found;
}

arrow::Result<Batch> checked(Batch batch) {
  if (batch != nullptr) ARROW_RETURN_NOT_OK(batch->ValidateFull());
  return batch;
}

void add_leaves(const parquet::arrow::SchemaField& field, std::vector<int>& leaves) {
  if (field.is_leaf()) leaves.push_back(field.column_index);
  for (const auto& child : field.children) add_leaves(child, leaves);
}

class ParquetRows final : public TableRows {
 public:
  static arrow::Result<std::unique_ptr<TableRows>> open(const std::shared_ptr<arrow::io::ReadableFile>& file, const std::vector<std::string>& columns) {
    auto rows = std::make_unique<ParquetRows>();
    parquet::arrow::FileReaderBuilder builder;
    ARROW_RETURN_NOT_OK(builder.Open(file));
    ARROW_ASSIGN_OR_RAISE(rows->file_, builder.Build());
    rows->file_->set_batch_size(batch_rows);
    rows->all_ = rows->file_->parquet_reader()->metadata()->num_rows();
    std::shared_ptr<arrow::Schema> schema;
    ARROW_RETURN_NOT_OK(rows->file_->GetSchema(&schema));
    ARROW_ASSIGN_OR_RAISE(const std::vector<int> places, find_columns(*schema, columns));
    std::vector<int> leaves, groups(static_cast<std::size_t>(rows->file_->num_row_groups()));
    for (const int place : places) add_leaves(rows->file_->manifest().schema_fields.at(static_cast<std::size_t>(place)), leaves);
    std::iota(groups.begin(), groups.end(), 0);
    ARROW_ASSIGN_OR_RAISE(rows->batches_, rows->file_->GetRecordBatchReader(groups, leaves));
    return rows;
  }
  arrow::Result<Batch> next() override {
    ARROW_ASSIGN_OR_RAISE(Batch batch, batches_->Next());
    if (batch != nullptr) given_ += batch->num_rows();
    if (batch == nullptr && given_ != all_) return arrow::Status::Invalid("gives ", given_, " rows of ", all_);
    return checked(std::move(batch));
  }
  [[nodiscard]] double done() const override { return all_ > 0 ? static_cast<double>(given_) / static_cast<double>(all_) : 1; }

 private:
  std::unique_ptr<parquet::arrow::FileReader> file_;
  std::unique_ptr<arrow::RecordBatchReader> batches_;
  std::int64_t all_ = 0, given_ = 0;
};

class ArrowFileRows final : public TableRows {
 public:
  static arrow::Result<std::unique_ptr<TableRows>> open(const std::shared_ptr<arrow::io::ReadableFile>& file, const std::vector<std::string>& columns) {
    auto rows = std::make_unique<ArrowFileRows>();
    ARROW_ASSIGN_OR_RAISE(rows->file_, arrow::ipc::RecordBatchFileReader::Open(file));
    ARROW_ASSIGN_OR_RAISE(rows->columns_, find_columns(*rows->file_->schema(), columns));
    return rows;
  }
  arrow::Result<Batch> next() override {
    if (given_ == file_->num_record_batches()) return Batch();
    ARROW_ASSIGN_OR_RAISE(const Batch batch, file_->ReadRecordBatch(given_++));
    ARROW_ASSIGN_OR_RAISE(Batch chosen, batch->SelectColumns(columns_));
    return checked(std::move(chosen));
  }
  [[nodiscard]] double done() const override { return static_cast<double>(given_) / std::max(1, file_->num_record_batches()); }

 private:
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> file_;
  std::vector<int> columns_;
  int given_ = 0;
};

/// What `datasets` keeps on the disk. Its end is marked, since a stream may be cut off between two batches without anything that shows it.
class ArrowStreamRows final : public TableRows {
 public:
  static arrow::Result<std::unique_ptr<TableRows>> open(const std::shared_ptr<arrow::io::ReadableFile>& file, const std::vector<std::string>& columns) {
    auto rows = std::make_unique<ArrowStreamRows>();
    rows->source_ = file;
    ARROW_ASSIGN_OR_RAISE(rows->bytes_, file->GetSize());
    std::array<char, 4> end{1};
    if (rows->bytes_ >= 8) ARROW_RETURN_NOT_OK(file->ReadAt(rows->bytes_ - 4, 4, end.data()));
    if (end != std::array<char, 4>{}) return arrow::Status::Invalid("is cut off: an Arrow stream ends with four zeros");
    ARROW_RETURN_NOT_OK(file->Seek(0));
    ARROW_ASSIGN_OR_RAISE(rows->stream_, arrow::ipc::RecordBatchStreamReader::Open(file));
    ARROW_ASSIGN_OR_RAISE(rows->columns_, find_columns(*rows->stream_->schema(), columns));
    return rows;
  }
  arrow::Result<Batch> next() override {
    ARROW_ASSIGN_OR_RAISE(const Batch batch, stream_->Next());
    if (batch == nullptr) return nullptr;
    ARROW_ASSIGN_OR_RAISE(Batch chosen, batch->SelectColumns(columns_));
    return checked(std::move(chosen));
  }
  [[nodiscard]] double done() const override {
    const auto at = source_->Tell();
    return at.ok() && bytes_ > 0 ? static_cast<double>(*at) / static_cast<double>(bytes_) : 0;
  }

 private:
  std::shared_ptr<arrow::io::ReadableFile> source_;
  std::shared_ptr<arrow::ipc::RecordBatchStreamReader> stream_;
  std::vector<int> columns_;
  std::int64_t bytes_ = 0;
};

}  // namespace

arrow::Result<std::unique_ptr<TableRows>> open_table(const std::string& path, const std::vector<std::string>& columns) {
  ARROW_ASSIGN_OR_RAISE(const auto file, arrow::io::ReadableFile::Open(path));
  std::array<char, 8> first{};
  ARROW_RETURN_NOT_OK(file->ReadAt(0, static_cast<std::int64_t>(first.size()), first.data()));
  ARROW_RETURN_NOT_OK(file->Seek(0));
  const std::string_view begin(first.data(), first.size());
  if (begin.starts_with("PAR1")) return ParquetRows::open(file, columns);
  if (begin.starts_with("ARROW1")) return ArrowFileRows::open(file, columns);
  if (begin.starts_with("\xff\xff\xff\xff")) return ArrowStreamRows::open(file, columns);
  return arrow::Status::Invalid("is neither a Parquet nor an Arrow file: it begins with neither PAR1, ARROW1 nor the mark of a stream");
}

}  // namespace troupe
