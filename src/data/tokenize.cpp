#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <stdexcept>
#include <thread>

#include "src/data/folder_lock.hpp"
#include "src/data/mapped_file.hpp"
#include "src/data/token_shards.hpp"

namespace troupe {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t most_read_at_once = std::uint64_t{1} << 30U;

/// Documents [first, end) of the corpus: one shard.
struct Part {
  std::uint64_t first = 0, end = 0, text_bytes = 0;
};

std::vector<Part> parts_of(const Corpus& corpus, std::uint64_t part_bytes) {
  std::vector<Part> parts(1);
  for (std::uint64_t i = 0; i < corpus.facts().documents; ++i) {
    if (parts.back().text_bytes >= part_bytes) parts.push_back({i, i, 0});
    parts.back().end = i + 1;
    parts.back().text_bytes += corpus.text_bytes(i);
  }
  return parts;
}

std::string shard_name(std::size_t part) {
  const std::string number = std::to_string(part);
  return "shard-" + std::string(number.size() < 5 ? 5 - number.size() : 0, '0') + number + ".tokens";
}

/// XXH3-64 of all from `offset` on; nothing: the file has become shorter.
std::optional<std::uint64_t> hash_of(const MappedFile& file, std::uint64_t offset) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), XXH3_freeState);
  XXH3_64bits_reset(state.get());
  std::vector<std::byte> block(std::size_t{1} << 20U);
  while (offset < file.size()) {
    const std::span part = std::span(block).first(std::min<std::uint64_t>(block.size(), file.size() - offset));
    if (!file.copy(offset, part)) return std::nullopt;
    XXH3_64bits_update(state.get(), part.data(), part.size());
    offset += part.size();
  }
  return XXH3_64bits_digest(state.get());
}

/// Writes `bytes` to a file that appears when all of it is on the disk.
void write_whole(const fs::path& target, const std::vector<std::span<const char>>& parts) {
  const std::string writing = target.string() + ".part";
  std::FILE* const file = std::fopen(writing.c_str(), "wbe");
  bool good = file != nullptr;
  for (const auto& part : parts) good = good && std::fwrite(part.data(), 1, part.size(), file) == part.size();
  good = good && std::fflush(file) == 0 && ::fsync(::fileno(file)) == 0;
  const int code = errno;
  if (file != nullptr) std::fclose(file);
  if (good && std::rename(writing.c_str(), target.c_str()) == 0) return;
  const std::string why = std::strerror(good ? errno : code);
  ::unlink(writing.c_str());
  throw std::runtime_error("cannot write " + target.string() + ": " + why);
}

template <class T>
std::span<const char> bytes_of(const T* data, std::size_t count) {
  return {reinterpret_cast<const char*>(data), count * sizeof(T)};
}

class Work {
 public:
  Work(const std::shared_ptr<const Corpus>& corpus, const std::shared_ptr<const Tokenizer>& tokenizer, const TokenizeOptions& options)
      : corpus_(corpus), tokenizer_(tokenizer), options_(options), parts_(parts_of(*corpus, options.part_bytes)), headers_(parts_.size()) {
    const RecordEncoding& how = options.encoding;
    masked_ = corpus->record().form != RecordForm::text && !how.train_on_input;
    const std::uint64_t facts[] = {corpus_key(*corpus), tokenizer->parts().hash, how.special_in_text ? 1U : 0U,
                                   options.part_bytes,  masked_ ? 1U : 0U,       XXH3_64bits(how.chat_template.data(), how.chat_template.size())};
    key_ = XXH3_64bits(facts, sizeof facts);
  }

  Result<TokenizeFacts> run() {
    std::vector<std::jthread> threads;
    for (unsigned i = 1; i < options_.threads; ++i) threads.emplace_back([this] { take_parts(); });
    take_parts();
    threads.clear();
    if (!problem_.empty()) return Error{problem_};
    if (stopped_) return Error{"stopped; what is done stays in " + options_.folder.string() + ": call this again to go on"};
    return seal();
  }

 private:
  void take_parts() {
    try {
      DocumentReader reader(corpus_);
      RecordEncoder encoder(tokenizer_, corpus_->record(), options_.encoding);
      for (std::size_t part = next_++; part < parts_.size() && !stopped_; part = next_++) make(part, reader, encoder);
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex_);
      if (problem_.empty()) problem_ = error.what();
      stopped_ = true;
    }
  }

  /// Whether the shard lies there whole, made by an earlier call; then its header is known.
  bool keep(std::size_t number, const fs::path& target, std::uint64_t key) {
    const Part& part = parts_[number];
    std::error_code none;
    if (!fs::exists(target, none)) return false;
    const auto file = MappedFile::open(target.string());
    const TokenShardHeader ours;
    TokenShardHeader found;
    if (!file || (*file)->size() < sizeof found || !(*file)->copy(0, std::span(&found, 1))) return false;
    const std::uint64_t size = (*file)->size();
    if (std::memcmp(found.magic, ours.magic, sizeof ours.magic) != 0 || found.key != key || found.documents != part.end - part.first) return false;
    if (found.tokens > size || found.file_bytes() != size) return false;
    if (options_.check_kept && hash_of(**file, sizeof found) != found.hash) return false;
    headers_[number] = found;
    ++kept_;
    return true;
  }

  void make(std::size_t number, DocumentReader& reader, RecordEncoder& encoder) {
    const Part& part = parts_[number];
    const fs::path target = options_.folder / shard_name(number);
    TokenShardHeader header;
    header.key = key_ + number;
    if (keep(number, target, header.key)) return done(part.text_bytes);
    const std::uint64_t special_before = encoder.special();
    std::vector<std::int32_t> ids;
    std::vector<std::uint64_t> ends;
    std::string text;
    for (std::uint64_t i = part.first; i < part.end; ++i) {
      if (stopped_ || (options_.stop && options_.stop())) {
        stopped_ = true;
        return;
      }
      text.resize(corpus_->text_bytes(i));
      for (std::uint64_t at = 0; at < text.size(); at += most_read_at_once)
        reader.read(i, at, std::span(text).subspan(at, std::min<std::uint64_t>(most_read_at_once, text.size() - at)));
      encoder.encode(text, ids);
      ends.push_back(ids.size());
      if (!text.empty()) done(text.size());
    }
    header.special = encoder.special() - special_before;
    write(target, header, ids, ends);
    headers_[number] = header;
  }

  void write(const fs::path& target, TokenShardHeader& header, const std::vector<std::int32_t>& ids, const std::vector<std::uint64_t>& ends) const {
    header.documents = ends.size();
    header.tokens = ids.size();
    header.masked = masked_ ? 1 : 0;
    header.width = tokenizer_->vocabulary() <= 65536 && !masked_ ? 2 : 4;
    std::vector<std::uint16_t> narrow;
    if (header.width == 2) narrow.assign(ids.begin(), ids.end());
    const auto body = header.width == 2 ? bytes_of(narrow.data(), narrow.size()) : bytes_of(ids.data(), ids.size());
    const auto where = bytes_of(ends.data(), ends.size());
    XXH3_state_t* const state = XXH3_createState();
    XXH3_64bits_reset(state);
    for (const auto piece : {where, body}) XXH3_64bits_update(state, piece.data(), piece.size());
    header.hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    write_whole(target, {bytes_of(&header, 1), where, body});
  }

  void done(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    done_ += bytes;
    if (options_.progress) options_.progress(done_, corpus_->facts().text_bytes);
  }

  Result<TokenizeFacts> seal() {
    TokenizeFacts facts{.text_bytes = corpus_->facts().text_bytes, .shards = parts_.size(), .kept = kept_};
    nlohmann::json shards = nlohmann::json::array();
    for (std::size_t i = 0; i < headers_.size(); ++i) {
      facts.documents += headers_[i].documents;
      facts.tokens += headers_[i].tokens;
      facts.special += headers_[i].special;
      shards.push_back({{"file", shard_name(i)}, {"documents", headers_[i].documents}, {"tokens", headers_[i].tokens}, {"xxh3", headers_[i].hash}});
    }
    const TokenizerParts& parts = tokenizer_->parts();
    const auto mark = [](const std::optional<std::int32_t>& id) { return id ? nlohmann::json(*id) : nlohmann::json(nullptr); };
    const nlohmann::json manifest{{"key", key_},
                                  {"tokenizer", parts.name},
                                  {"tokenizer_hash", parts.hash},
                                  {"vocabulary", tokenizer_->vocabulary()},
                                  {"bos", mark(parts.bos)},
                                  {"eos", corpus_->record().form == RecordForm::messages ? mark({}) : mark(parts.eos)},  // a turn's mark ends the last one
                                  {"documents", facts.documents},
                                  {"tokens", facts.tokens},
                                  {"text_bytes", facts.text_bytes},
                                  {"special", facts.special},
                                  {"shards", shards}};
    const std::string text = manifest.dump(1) + "\n";
    try {
      write_whole(options_.folder / "manifest.json", {std::span<const char>(text)});
    } catch (const std::exception& error) {
      return Error{error.what()};
    }
    return facts;
  }

  const std::shared_ptr<const Corpus>& corpus_;
  const std::shared_ptr<const Tokenizer>& tokenizer_;
  const TokenizeOptions& options_;
  std::vector<Part> parts_;
  std::vector<TokenShardHeader> headers_;
  std::uint64_t key_ = 0, done_ = 0;
  bool masked_ = false;
  std::atomic<std::uint64_t> kept_{0};
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;  ///< of done_, problem_ and the call of progress
  std::string problem_;
};

}  // namespace

std::uint64_t corpus_key(const Corpus& corpus) {
  std::string text = std::to_string(static_cast<int>(corpus.format())) + corpus.record().key();
  for (const DataFile& file : corpus.files())
    text += "\n" + fs::absolute(file.path).string() + "\n" + std::to_string(file.bytes) + " " + std::to_string(file.modified_nanos);
  return XXH3_64bits(text.data(), text.size());
}

Result<TokenizeFacts> tokenize_corpus(const std::shared_ptr<const Corpus>& corpus, const std::shared_ptr<const Tokenizer>& tokenizer,
                                      const TokenizeOptions& options) {
  std::error_code code;
  fs::create_directories(options.folder, code);
  if (code) return Error{"cannot create " + options.folder.string() + ": " + code.message()};
  const FolderLock lock(options.folder);
  return Work(corpus, tokenizer, options).run();
}

}  // namespace troupe
