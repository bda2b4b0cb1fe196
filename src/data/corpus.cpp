#include "src/data/corpus.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "src/data/corpus_index.hpp"
#include "src/data/folder_lock.hpp"
#include "src/data/json_line.hpp"
#include "src/data/table_files.hpp"
#include "src/data/unpack.hpp"

namespace troupe {
namespace {

class IndexedCorpus final : public Corpus {
 public:
  IndexedCorpus(const CorpusOptions& options, std::vector<DataFile> files, std::unique_ptr<MappedIndex> index, bool from_cache, const std::string& first_broken)
      : format_(options.format), record_(options.record), files_(std::move(files)), index_(std::move(index)) {
    const auto& header = index_->header;
    facts_ = {header.documents, header.text_bytes, header.empty_documents, header.blank_lines, header.broken_records, first_broken, from_cache};
  }
  [[nodiscard]] const CorpusFacts& facts() const noexcept override { return facts_; }
  [[nodiscard]] const std::vector<DataFile>& files() const noexcept override { return files_; }
  [[nodiscard]] DataFormat format() const noexcept override { return format_; }
  [[nodiscard]] const RecordRules& record() const noexcept override { return record_; }
  [[nodiscard]] std::uint64_t text_bytes(std::uint64_t i) const noexcept override { return index_->entries[i].text; }
  [[nodiscard]] DocumentPlace place(std::uint64_t i) const noexcept override {
    const auto& runs = index_->runs;
    const auto run = std::upper_bound(runs.begin(), runs.end(), i, [](std::uint64_t wanted, const IndexRun& r) { return wanted < r.first_document; }) - 1;
    DocumentPlace place{run->file, run->offset, index_->entries[i].stored, index_->entries[i].text};
    for (std::uint64_t before = run->first_document; before < i; ++before) place.offset += index_->entries[before].stored;
    return place;
  }

 private:
  DataFormat format_;
  RecordRules record_;
  std::vector<DataFile> files_;
  std::unique_ptr<MappedIndex> index_;
  CorpusFacts facts_;
};

}  // namespace

Result<std::shared_ptr<const Corpus>> Corpus::open(const CorpusOptions& options) {
  auto files = find_data_files(options.paths, options.section);
  if (!files) return files.error();
  std::error_code ignored;
  if (!options.index_folder.empty()) std::filesystem::create_directories(options.index_folder, ignored);
  const FolderLock lock(options.index_folder);
  const UnpackOptions unpack{options.index_folder, options.unpack_limit_bytes, options.progress};
  auto unpacked = options.format == DataFormat::table ? write_out_tables(*files, options.record.columns(), unpack) : unpack_files(*files, unpack);
  if (!unpacked) return unpacked.error();
  bool from_cache = false;
  std::string first_broken;
  auto index = index_documents(options, *files, from_cache, first_broken);
  if (!index) return index.error();
  if ((*index)->header.documents == 0) {
    const auto& header = (*index)->header;
    return Error{options.section + ".dataset_path: no text in " + std::to_string(files->size()) + (files->size() == 1 ? " file (" : " files (first ") +
                 files->front().path + "): " + std::to_string(header.empty_documents) + " empty documents, " + std::to_string(header.blank_lines) +
                 " blank lines, " + std::to_string(header.broken_records) + " broken records" + (first_broken.empty() ? "" : " (first " + first_broken + ")")};
  }
  return std::shared_ptr<const Corpus>(std::make_shared<IndexedCorpus>(options, std::move(*files), std::move(*index), from_cache, first_broken));
}

std::string Corpus::where(std::uint64_t i) const {
  const DocumentPlace at = place(i);
  const DataFile& file = files()[at.file];
  if (const auto row = file.table ? row_of_copy(file, at.offset) : std::optional<std::uint64_t>()) return file.path + ", row " + std::to_string(*row);
  return file.path + " at byte " + std::to_string(at.offset);
}

DocumentReader::DocumentReader(std::shared_ptr<const Corpus> corpus, ReadFile read_file)
    : corpus_(std::move(corpus)), files_(corpus_->files(), std::move(read_file)) {}

void DocumentReader::decode(std::uint64_t i) {
  if (decoded_ == i) return;
  decoded_ = ~std::uint64_t{0};
  const auto place = corpus_->place(i);
  std::string line(place.stored, '\0');
  files_.read(place.file, place.offset, line);
  line.resize(std::min(line.find('\n'), line.size()));
  JsonLineProblem problem;
  text_ = text_of_json_line(line, problem, corpus_->record());
  const auto where = [&] { return corpus_->files()[place.file].path + ": record at byte " + std::to_string(place.offset) + ": "; };
  if (!problem.text.empty()) throw std::runtime_error(where() + problem.text);
  if (text_.size() != place.text) {
    throw std::runtime_error(where() + "has " + std::to_string(text_.size()) + " bytes of text, indexed were " + std::to_string(place.text) +
                             ": the file was changed");
  }
  decoded_ = i;
}

void DocumentReader::read(std::uint64_t i, std::uint64_t first, std::span<char> out) {
  if (corpus_->format() == DataFormat::text) {
    const auto place = corpus_->place(i);
    return files_.read(place.file, place.offset + first, out);
  }
  decode(i);
  std::memcpy(out.data(), text_.data() + first, out.size());
}

}  // namespace troupe
