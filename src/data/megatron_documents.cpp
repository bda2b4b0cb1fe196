#include "src/data/megatron_documents.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

#include "src/data/mapped_file.hpp"

namespace troupe {
namespace {

constexpr std::array<char, 9> magic{'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
constexpr std::size_t header_bytes = magic.size() + 8 + 1 + 8 + 8;  ///< magic, version, type, sequences, entries of the document list

/// Bytes of an id by Megatron's number of its type; 0: none of whole numbers.
std::uint32_t width_of(std::uint8_t type) {
  switch (type) {
    case 1:
    case 2: return 1;
    case 3:
    case 8: return 2;
    case 4: return 4;
    case 5: return 8;
    default: return 0;
  }
}

template <class T>
T value_at(std::span<const std::byte> bytes, std::uint64_t offset) {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

class MegatronDocuments final : public TokenDocuments, public std::enable_shared_from_this<MegatronDocuments> {
 public:
  std::string prefix;
  std::unique_ptr<MappedFile> data;
  TokenMarks marks;
  std::uint32_t width = 4;
  std::vector<std::uint64_t> begins;  ///< of each document in ids, and the end
  std::vector<std::uint64_t> counts;

  [[nodiscard]] std::uint64_t documents() const noexcept override { return begins.size(); }
  [[nodiscard]] std::uint64_t total_tokens() const noexcept override { return all; }
  [[nodiscard]] std::uint64_t tokens(std::uint64_t i) const noexcept override { return counts[i]; }
  [[nodiscard]] std::int64_t vocabulary() const noexcept override { return marks.vocabulary; }
  [[nodiscard]] std::optional<std::int32_t> bos() const noexcept override { return marks.bos; }
  [[nodiscard]] std::optional<std::int32_t> eos() const noexcept override { return marks.eos; }
  [[nodiscard]] std::string describe() const override {
    return prefix + ".bin, " + std::to_string(documents()) + " documents, " + std::to_string(all) + " tokens";
  }
  [[nodiscard]] std::string place(std::uint64_t i) const override { return prefix + ".bin at byte " + std::to_string(begins[i] * width); }
  [[nodiscard]] std::unique_ptr<TokenReader> reader(ReadFile read_file) const override;
  [[nodiscard]] std::vector<DataFile> files() const override { return {data->file()}; }
  /// `ids`: as the .bin holds them.
  void decode(std::uint64_t i, std::span<const std::byte> ids, std::span<std::int32_t> out) const {
    const std::byte* at = ids.data();
    for (std::int32_t& id : out) {
      std::uint64_t value = 0;
      std::memcpy(&value, at, width);
      at += width;
      if (value >= static_cast<std::uint64_t>(marks.vocabulary))
        throw std::runtime_error(prefix + ".bin: document " + std::to_string(i) + ": id " + std::to_string(value) + " in a vocabulary of " +
                                 std::to_string(marks.vocabulary) + ": was it made with this tokenizer?");
      id = static_cast<std::int32_t>(value);
    }
  }
  std::uint64_t all = 0;
};

class MegatronReader final : public TokenReader {
 public:
  MegatronReader(std::shared_ptr<const MegatronDocuments> documents, ReadFile read_file)
      : documents_(std::move(documents)), names_(documents_->files()), files_(names_, std::move(read_file)) {}
  void read(std::uint64_t i, std::uint64_t first, std::span<std::int32_t> out) override {
    const MegatronDocuments& d = *documents_;
    if (first + out.size() > d.counts[i])
      throw std::out_of_range(d.prefix + ".idx: document " + std::to_string(i) + " has " + std::to_string(d.counts[i]) + " tokens");
    if (out.empty()) return;
    const std::uint64_t begin = (d.begins[i] + first) * d.width;
    bytes_.resize(out.size() * d.width);
    files_.probe(0, begin + bytes_.size() - 1);
    if (!d.data->copy(begin, std::span(bytes_))) throw std::runtime_error(d.data->lost());
    d.decode(i, bytes_, out);
  }

 private:
  std::shared_ptr<const MegatronDocuments> documents_;
  std::vector<DataFile> names_;
  FileReads files_;
  std::vector<std::byte> bytes_;
};

std::unique_ptr<TokenReader> MegatronDocuments::reader(ReadFile read_file) const {
  return std::make_unique<MegatronReader>(shared_from_this(), std::move(read_file));
}

/// Fills documents from the index; what is wrong with it, or nothing.
std::string read_index(std::span<const std::byte> index, MegatronDocuments& out) {
  if (index.size() < header_bytes || std::memcmp(index.data(), magic.data(), magic.size()) != 0) return "it does not begin as Megatron's index";
  if (const auto version = value_at<std::uint64_t>(index, magic.size()); version != 1) return "version " + std::to_string(version) + "; 1 is known";
  const auto type = value_at<std::uint8_t>(index, magic.size() + 8);
  out.width = width_of(type);
  if (out.width == 0) return "its ids are of type " + std::to_string(type) + ", no whole numbers";
  const auto sequences = value_at<std::uint64_t>(index, magic.size() + 9), entries = value_at<std::uint64_t>(index, magic.size() + 17);
  const std::uint64_t body = index.size() - header_bytes;
  if (sequences > body / 12 || entries > body / 8 || sequences * 12 + entries * 8 > body) return "its counts are larger than the file";
  if (entries < 2) return "it holds no document";
  const std::uint64_t sizes = header_bytes, pointers = sizes + sequences * 4, list = pointers + sequences * 8, bytes = out.data->size();
  for (std::uint64_t i = 0; i < sequences; ++i) {
    const auto size = value_at<std::int32_t>(index, sizes + i * 4);
    const auto pointer = value_at<std::int64_t>(index, pointers + i * 8);
    const std::string where = "sequence " + std::to_string(i) + " of " + std::to_string(size) + " ids at byte " + std::to_string(pointer);
    if (size < 0 || pointer < 0 || static_cast<std::uint64_t>(pointer) % out.width != 0) return where + " cannot be";
    if (static_cast<std::uint64_t>(pointer) > bytes || static_cast<std::uint64_t>(size) > (bytes - static_cast<std::uint64_t>(pointer)) / out.width)
      return where + " is beyond the " + std::to_string(bytes) + " bytes of the .bin";
  }
  std::uint64_t before = 0;
  for (std::uint64_t d = 0; d + 1 < entries; ++d) {
    const auto from = value_at<std::uint64_t>(index, list + d * 8), to = value_at<std::uint64_t>(index, list + d * 8 + 8);
    if (from < before || to < from || to > sequences)
      return "document " + std::to_string(d) + " is sequences " + std::to_string(from) + " to " + std::to_string(to) + " of " + std::to_string(sequences);
    before = from;
    std::uint64_t count = 0, begin = 0;
    for (std::uint64_t i = from; i < to; ++i) {
      const std::uint64_t place = value_at<std::uint64_t>(index, pointers + i * 8) / out.width;
      if (count == 0) begin = place;
      if (place != begin + count) return "the sequences of document " + std::to_string(d) + " do not follow each other";
      count += value_at<std::uint32_t>(index, sizes + i * 4);
    }
    if (count == 0) continue;
    out.begins.push_back(begin);
    out.counts.push_back(count);
    out.all += count;
  }
  return out.all == 0 ? "it holds no token" : "";
}

}  // namespace

Result<std::shared_ptr<const TokenDocuments>> open_megatron(const std::string& path, const TokenMarks& marks) {
  auto documents = std::make_shared<MegatronDocuments>();
  documents->prefix = path.ends_with(".idx") || path.ends_with(".bin") ? path.substr(0, path.size() - 4) : path;
  documents->marks = marks;
  auto index = MappedFile::open(documents->prefix + ".idx");
  if (!index) return index.error();
  auto data = MappedFile::open(documents->prefix + ".bin");
  if (!data) return data.error();
  documents->data = std::move(*data);
  std::vector<std::byte> entries((*index)->size());
  if (!(*index)->copy(0, std::span(entries))) return Error{(*index)->lost()};
  if (const std::string wrong = read_index(entries, *documents); !wrong.empty()) return Error{documents->prefix + ".idx: " + wrong};
  if (documents->marks.vocabulary == 0) documents->marks.vocabulary = documents->width == 1 ? 256 : documents->width == 2 ? 65536 : 0x7fffffff;
  return std::shared_ptr<const TokenDocuments>(std::move(documents));
}

}  // namespace troupe
