#include "src/data/token_shards.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "src/data/mapped_file.hpp"

namespace troupe {
namespace {

/// One mapped shard, its lengths checked. Where documents end is held in memory: it is asked for where nothing can fail.
struct Shard {
  std::string path;
  std::unique_ptr<MappedFile> file;
  TokenShardHeader header;
  std::uint64_t first_document = 0;
  std::vector<std::uint64_t> ends;
  std::uint64_t ids = 0;  ///< where they begin in the file
};

Result<Shard> open_shard(const std::string& path) {
  auto file = MappedFile::open(path);
  if (!file) return file.error();
  const auto wrong = [&](const std::string& why) { return Error{path + ": is no whole token shard: " + why}; };
  const std::uint64_t size = (*file)->size();
  TokenShardHeader header;
  const TokenShardHeader ours;
  if (size < sizeof header) return wrong("it has " + std::to_string(size) + " bytes");
  if (!(*file)->copy(0, std::span(&header, 1))) return Error{(*file)->lost()};
  if (std::memcmp(header.magic, ours.magic, sizeof ours.magic) != 0) return wrong("it does not begin as one of this version");
  if ((header.width != 2 && header.width != 4) || header.masked > 1 || (header.masked == 1 && header.width == 2))
    return wrong("ids of " + std::to_string(header.width) + " bytes, masks " + std::to_string(header.masked));
  const std::uint64_t body = size - sizeof header;
  if (header.tokens > body / header.width || header.documents > body / sizeof(std::uint64_t)) return wrong("its counts are larger than the file");
  if (header.file_bytes() != size) return wrong("its counts do not fit the file's " + std::to_string(size) + " bytes");
  Shard shard{path, std::move(*file), header, 0, std::vector<std::uint64_t>(header.documents), sizeof header + header.documents * sizeof(std::uint64_t)};
  if (!shard.file->copy(sizeof header, std::span(shard.ends))) return Error{shard.file->lost()};
  std::uint64_t before = 0;
  for (std::uint64_t i = 0; i < header.documents; ++i) {
    if (shard.ends[i] < before || shard.ends[i] > header.tokens)
      return wrong("document " + std::to_string(i) + " ends at token " + std::to_string(shard.ends[i]));
    before = shard.ends[i];
  }
  if (before != header.tokens) return wrong("its documents end at token " + std::to_string(before) + " of " + std::to_string(header.tokens));
  return shard;
}

class ShardDocuments final : public TokenDocuments, public std::enable_shared_from_this<ShardDocuments> {
 public:
  std::vector<Shard> shards;
  std::uint64_t all_documents = 0, all_tokens = 0;
  std::int64_t size_of_vocabulary = 0;
  std::optional<std::int32_t> bos_id, eos_id;
  std::string tokenizer;

  [[nodiscard]] std::uint64_t documents() const noexcept override { return all_documents; }
  [[nodiscard]] std::uint64_t total_tokens() const noexcept override { return all_tokens; }
  [[nodiscard]] std::uint64_t tokens(std::uint64_t i) const noexcept override {
    const auto [begin, end] = bounds(shard_of(i), i);
    return end - begin;
  }
  [[nodiscard]] std::int64_t vocabulary() const noexcept override { return size_of_vocabulary; }
  [[nodiscard]] std::optional<std::int32_t> bos() const noexcept override { return bos_id; }
  [[nodiscard]] std::optional<std::int32_t> eos() const noexcept override { return eos_id; }
  [[nodiscard]] std::string describe() const override {
    return std::to_string(shards.size()) + " token shards, " + std::to_string(all_documents) + " documents, " + std::to_string(all_tokens) + " tokens of " +
           tokenizer;
  }
  [[nodiscard]] std::string place(std::uint64_t i) const override {
    const Shard& shard = shard_of(i);
    return shard.path + " at token " + std::to_string(bounds(shard, i).first);
  }
  [[nodiscard]] std::unique_ptr<TokenReader> reader(ReadFile read_file) const override;
  /// Where the wanted tokens stand: the shard's number and its token.
  [[nodiscard]] std::pair<std::uint32_t, std::uint64_t> find(std::uint64_t i, std::uint64_t first, std::size_t count) const {
    const Shard& shard = shard_of(i);
    const auto [begin, end] = bounds(shard, i);
    if (first + count > end - begin)
      throw std::out_of_range(shard.path + ": document " + std::to_string(i) + " has " + std::to_string(end - begin) + " tokens");
    return {static_cast<std::uint32_t>(&shard - shards.data()), begin + first};
  }
  /// `ids`: as the shard holds them.
  void decode(const Shard& shard, std::span<const std::byte> ids, std::uint64_t document, std::span<std::int32_t> out) const {
    const std::byte* at = ids.data();
    for (std::int32_t& id : out) {
      std::uint32_t value = 0;
      std::memcpy(&value, at, shard.header.width);
      at += shard.header.width;
      const auto found = static_cast<std::int32_t>(value);
      id = found;
      if ((shard.header.masked == 0 && found < 0) || id_of_token(found) >= size_of_vocabulary)
        throw std::runtime_error(shard.path + ": document " + std::to_string(document) + ": id " + std::to_string(value) + " in a vocabulary of " +
                                 std::to_string(size_of_vocabulary) + ": the shard is damaged; make it anew");
    }
  }
  [[nodiscard]] std::vector<DataFile> files() const override {
    std::vector<DataFile> all;
    all.reserve(shards.size());
    for (const Shard& shard : shards) all.push_back(shard.file->file());
    return all;
  }

 private:
  [[nodiscard]] const Shard& shard_of(std::uint64_t i) const noexcept {
    return *(std::upper_bound(shards.begin(), shards.end(), i, [](std::uint64_t wanted, const Shard& s) { return wanted < s.first_document; }) - 1);
  }
  static std::pair<std::uint64_t, std::uint64_t> bounds(const Shard& shard, std::uint64_t i) noexcept {
    const std::uint64_t within = i - shard.first_document;
    return {within == 0 ? 0 : shard.ends[within - 1], shard.ends[within]};
  }
};

class ShardReader final : public TokenReader {
 public:
  ShardReader(std::shared_ptr<const ShardDocuments> documents, ReadFile read_file)
      : documents_(std::move(documents)), names_(documents_->files()), files_(names_, std::move(read_file)) {}
  void read(std::uint64_t i, std::uint64_t first, std::span<std::int32_t> out) override {
    if (out.empty()) return;
    const auto [number, token] = documents_->find(i, first, out.size());
    const Shard& shard = documents_->shards[number];
    const std::uint64_t begin = shard.ids + token * shard.header.width;
    bytes_.resize(out.size() * shard.header.width);
    files_.probe(number, begin + bytes_.size() - 1);
    if (!shard.file->copy(begin, std::span(bytes_))) throw std::runtime_error(shard.file->lost());
    documents_->decode(shard, bytes_, i, out);
  }

 private:
  std::shared_ptr<const ShardDocuments> documents_;
  std::vector<DataFile> names_;
  FileReads files_;
  std::vector<std::byte> bytes_;
};

std::unique_ptr<TokenReader> ShardDocuments::reader(ReadFile read_file) const {
  return std::make_unique<ShardReader>(shared_from_this(), std::move(read_file));
}

std::optional<std::int32_t> mark_of(const nlohmann::json& manifest, const char* key) {
  const auto& value = manifest.at(key);
  return value.is_null() ? std::nullopt : std::optional(value.get<std::int32_t>());
}

}  // namespace

Result<std::shared_ptr<const TokenDocuments>> open_token_shards(const std::filesystem::path& folder, std::uint64_t tokenizer) {
  const std::string name = (folder / "manifest.json").string();
  std::ifstream in(name, std::ios::binary);
  if (!in) return Error{"no token shards in " + folder.string() + ": there is no manifest.json (`troupe tokenize` writes it last; call it again to go on)"};
  auto documents = std::make_shared<ShardDocuments>();
  try {
    const auto manifest = nlohmann::json::parse(std::string{std::istreambuf_iterator<char>(in), {}});
    documents->size_of_vocabulary = manifest.at("vocabulary").get<std::int64_t>();
    documents->bos_id = mark_of(manifest, "bos");
    documents->eos_id = mark_of(manifest, "eos");
    documents->tokenizer = manifest.at("tokenizer").get<std::string>();
    if (const auto of = manifest.at("tokenizer_hash").get<std::uint64_t>(); tokenizer != 0 && of != tokenizer)
      return Error{folder.string() + ": these token shards were made with another tokenizer (" + documents->tokenizer + ", hash " + std::to_string(of) +
                   ") than model.hf_assets_path names (hash " + std::to_string(tokenizer) + "); make them anew with `troupe tokenize`, or name that tokenizer"};
    for (const auto& entry : manifest.at("shards")) {
      auto shard = open_shard((folder / entry.at("file").get<std::string>()).string());
      if (!shard) return shard.error();
      if (shard->header.documents != entry.at("documents").get<std::uint64_t>() || shard->header.tokens != entry.at("tokens").get<std::uint64_t>())
        return Error{shard->path + ": has other counts than " + name + " says; make the shards anew"};
      shard->first_document = documents->all_documents;
      documents->all_documents += shard->header.documents;
      documents->all_tokens += shard->header.tokens;
      if (shard->header.documents > 0) documents->shards.push_back(std::move(*shard));
    }
  } catch (const nlohmann::json::exception& error) {
    return Error{name + ": is no manifest of token shards: " + error.what()};
  }
  if (documents->all_tokens == 0) return Error{folder.string() + ": these token shards hold no token"};
  return std::shared_ptr<const TokenDocuments>(std::move(documents));
}

}  // namespace troupe
