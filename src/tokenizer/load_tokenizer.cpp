#include <xxhash.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "src/tokenizer/tokenizer.hpp"
#include "src/tokenizer/tokenizer_file.hpp"

namespace troupe {
namespace {

namespace fs = std::filesystem;
constexpr std::uintmax_t largest_file = std::uintmax_t{512} << 20U;

Result<std::string> contents(const fs::path& file) {
  std::error_code code;
  const auto bytes = fs::file_size(file, code);
  if (code) return Error{"cannot read " + file.string() + ": " + code.message()};
  if (bytes > largest_file) return Error{file.string() + ": " + std::to_string(bytes) + " bytes; no tokenizer is larger than 512 MiB"};
  std::ifstream in(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in || text.size() != bytes) return Error{"cannot read " + file.string() + ": it ends after " + std::to_string(text.size()) + " bytes"};
  return text;
}

Result<fs::path> find_file(const std::string& path) {
  std::error_code code;
  if (!fs::is_directory(path, code)) {
    if (fs::exists(path, code)) return fs::path(path);
    return Error{"no tokenizer at " + path + ": there is no such file or folder"};
  }
  for (const char* name : {"tokenizer.json", "tokenizer.model", "original/tokenizer.model"})
    if (fs::exists(fs::path(path) / name, code)) return fs::path(path) / name;
  return Error{"no tokenizer in the folder " + path + ": neither tokenizer.json nor tokenizer.model is there"};
}

/// SentencePiece's files begin with a field of their schema; tiktoken's are lines of text.
bool is_sentencepiece(std::string_view text) { return text.starts_with('\n'); }

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::load(const std::string& path) {
  const auto file = find_file(path);
  if (!file) return file.error();
  const auto text = contents(*file);
  if (!text) return text.error();
  const bool json = file->extension() == ".json";
  if (!json && is_sentencepiece(*text))
    return Error{file->string() +
                 ": is a SentencePiece model; use the tokenizer.json that Hugging Face keeps beside it (transformers writes one with save_pretrained)"};
  auto parts = json ? read_tokenizer_json(*text, file->string()) : read_tiktoken(*text, file->string());
  if (!parts) return parts.error();
  if (const fs::path beside = file->parent_path() / "tokenizer_config.json"; json && fs::exists(beside)) {
    const auto config = contents(beside);
    if (!config) return config.error();
    if (auto read = read_tokenizer_config(*config, beside.string(), *parts); !read) return read.error();
  }
  parts->hash = XXH3_64bits(text->data(), text->size()) + 31 * static_cast<std::uint64_t>(parts->bos.value_or(-1) + 1) +
                37 * static_cast<std::uint64_t>(parts->eos.value_or(-1) + 1);
  if (parts->texts.empty()) return Error{file->string() + ": has no token"};
  return std::make_shared<const Tokenizer>(std::move(*parts));
}

}  // namespace troupe
