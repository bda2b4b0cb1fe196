#include "src/data/open_documents.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "src/base/fnv.hpp"
#include "src/base/passing_folder.hpp"
#include "src/data/byte_tokenizer.hpp"
#include "src/data/loader.hpp"
#include "src/data/megatron_documents.hpp"
#include "src/data/token_shards.hpp"

namespace troupe {
namespace {

namespace fs = std::filesystem;

/// The files of a tokenizer with sizes and times: what is the same as long as they are.
std::string state_of(const fs::path& path) {
  std::string text = path.string();
  const auto add = [&](const fs::path& file) {
    std::error_code code;
    if (!fs::is_regular_file(file, code)) return;
    text += "\n" + file.string() + " " + std::to_string(fs::file_size(file, code)) + " " +
            std::to_string(fs::last_write_time(file, code).time_since_epoch().count());
  };
  add(path);
  const fs::path folder = fs::is_directory(path) ? path : path.parent_path();
  for (const char* name : {"tokenizer.json", "tokenizer.model", "original/tokenizer.model", "tokenizer_config.json"}) add(folder / name);
  return text;
}

Result<std::shared_ptr<const TokenDocuments>> tokenized(const CorpusOptions& source, const std::shared_ptr<const Corpus>& corpus,
                                                        const DocumentOptions& options) {
  std::optional<PassingFolder> passing;
  if (source.index_folder.empty()) {
    auto made = PassingFolder::make("tokens");
    if (!made) return made.error();
    passing.emplace(std::move(made).value());
  }
  TokenizeOptions work;
  const RecordEncoding& how = options.encoding;
  const std::string manner = how.chat_template + (how.train_on_input ? "+" : "");
  const std::uint64_t key = corpus_key(*corpus) ^ (options.tokenizer->parts().hash * 3 + (how.special_in_text ? 1 : 0)) ^ (manner.empty() ? 0 : fnv1a(manner));
  work.folder = (passing ? passing->path() : fs::path(source.index_folder)) / ("tokens-" + std::to_string(key));
  work.threads = options.threads > 0 ? options.threads : std::max(1U, std::thread::hardware_concurrency());
  work.encoding = how;
  work.check_kept = false;  // their lengths are looked at; all of them, at every start, would take as long as the data is large
  work.progress = options.progress;
  const auto made = tokenize_corpus(corpus, options.tokenizer, work);
  if (!made) return made.error();
  if (made->special > 0 && options.warn)
    options.warn("data: the texts spell " + std::to_string(made->special) + " special tokens, which are " +
                 (how.special_in_text ? "those tokens (data.special_tokens_in_text = true)" : "text like any other (data.special_tokens_in_text = false)"));
  return open_token_shards(work.folder, options.tokenizer->parts().hash);
}

/// The path of a source of tokens, which is one.
Result<std::string> one_path(const CorpusOptions& source) {
  std::vector<std::string> paths;
  std::ranges::copy_if(source.paths, std::back_inserter(paths), [](const std::string& path) { return !path.starts_with('!'); });
  if (paths.size() == 1) return paths.front();
  return Error{source.section + ".dataset_path: tokens (" + source.section + ".dataset = \"tokens\" or \"megatron\") are read from one path, found " +
               std::to_string(paths.size()) + "; several are a blend (data.blend_weights)"};
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> open_tokenizer(const std::optional<std::string>& hf_assets_path, KeptTokenizer* kept) {
  if (!hf_assets_path || hf_assets_path->empty()) return std::shared_ptr<const Tokenizer>();
  KeptTokenizer none;
  KeptTokenizer& last = kept != nullptr ? *kept : none;
  const std::lock_guard lock(last.mutex);
  const std::string state = state_of(*hf_assets_path);
  if (last.tokenizer && last.state == state) return last.tokenizer;
  auto tokenizer = Tokenizer::load(*hf_assets_path);
  if (!tokenizer) return Error{"model.hf_assets_path: " + tokenizer.error().message};
  last.state = state;
  last.tokenizer = *tokenizer;
  return tokenizer;
}

Result<std::optional<std::int64_t>> vocabulary_of(const DataSettings& settings, const std::optional<std::string>& hf_assets_path) {
  const auto tokenizer = open_tokenizer(hf_assets_path, settings.tokenizer.get());
  if (!tokenizer) return tokenizer.error();
  if (*tokenizer) return std::optional<std::int64_t>((*tokenizer)->vocabulary());
  if (settings.dataset == "megatron") return std::optional<std::int64_t>();
  if (settings.dataset != "tokens") return std::optional<std::int64_t>(ByteTokenizer::vocab_size);
  std::int64_t largest = 0;
  for (const CorpusOptions& source : sources_of(settings)) {
    const auto path = one_path(source);
    if (!path) return path.error();
    const auto shards = open_token_shards(*path, 0);
    if (!shards) return shards.error();
    largest = std::max(largest, (*shards)->vocabulary());
  }
  return std::optional<std::int64_t>(largest);
}

Result<DocumentOptions> document_options(const DataSettings& settings, const std::optional<std::string>& hf_assets_path) {
  auto tokenizer = open_tokenizer(hf_assets_path, settings.tokenizer.get());
  if (!tokenizer) return tokenizer.error();
  return DocumentOptions{.tokenizer = std::move(*tokenizer),
                         .encoding = {settings.special_tokens_in_text, settings.train_on_input, settings.chat_template.value_or("")}};
}

Result<std::shared_ptr<const TokenDocuments>> open_documents(const CorpusOptions& source, const DocumentOptions& options) {
  if (source.format == DataFormat::tokens || source.format == DataFormat::megatron) {
    const auto path = one_path(source);
    if (!path) return path.error();
    if (source.format == DataFormat::tokens) return open_token_shards(*path, hash_of(options.tokenizer));
    TokenMarks marks;
    if (options.tokenizer) marks = {options.tokenizer->vocabulary(), options.tokenizer->parts().bos, options.tokenizer->parts().eos};
    return open_megatron(*path, marks);
  }
  auto corpus = Corpus::open(source);
  if (!corpus) return corpus.error();
  if (const CorpusFacts& facts = (*corpus)->facts(); facts.broken_records > 0 && options.warn)
    options.warn("data: " + std::to_string(facts.broken_records) + " broken records are left out (data.on_error = \"skip\")" +
                 (facts.first_broken.empty() ? "" : "; the first: " + facts.first_broken));
  if (!options.tokenizer && source.record.form != RecordForm::text)
    return Error{"data.records = \"" + source.record.key() + "\": turns are marked with a tokenizer's tokens; set model.hf_assets_path"};
  if (!options.tokenizer) return byte_documents(std::move(*corpus));
  return tokenized(source, *corpus, options);
}

Result<Corpora> open_corpora(const std::vector<CorpusOptions>& sources, const DocumentOptions& options) {
  Corpora corpora;
  for (const CorpusOptions& source : sources) {
    auto documents = open_documents(source, options);
    if (!documents) return documents.error();
    corpora.push_back(std::move(*documents));
  }
  return corpora;
}

}  // namespace troupe
