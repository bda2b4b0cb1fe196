#include <utility>

#include "src/data/byte_tokenizer.hpp"
#include "src/data/token_documents.hpp"

namespace troupe {
namespace {

class ByteReader final : public TokenReader {
 public:
  ByteReader(std::shared_ptr<const Corpus> corpus, ReadFile read_file) : reader_(std::move(corpus), std::move(read_file)) {}
  void read(std::uint64_t i, std::uint64_t first, std::span<std::int32_t> out) override {
    if (out.empty()) return;
    bytes_.resize(out.size());
    reader_.read(i, first, bytes_);
    for (std::size_t k = 0; k < out.size(); ++k) out[k] = static_cast<unsigned char>(bytes_[k]);
  }

 private:
  DocumentReader reader_;
  std::vector<char> bytes_;
};

class ByteDocuments final : public TokenDocuments {
 public:
  explicit ByteDocuments(std::shared_ptr<const Corpus> corpus) : corpus_(std::move(corpus)) {}
  [[nodiscard]] std::uint64_t documents() const noexcept override { return corpus_->facts().documents; }
  [[nodiscard]] std::uint64_t total_tokens() const noexcept override { return corpus_->facts().text_bytes; }
  [[nodiscard]] std::uint64_t tokens(std::uint64_t i) const noexcept override { return corpus_->text_bytes(i); }
  [[nodiscard]] std::int64_t vocabulary() const noexcept override { return ByteTokenizer::vocab_size; }
  [[nodiscard]] std::optional<std::int32_t> bos() const noexcept override { return ByteTokenizer::bos; }
  [[nodiscard]] std::optional<std::int32_t> eos() const noexcept override { return ByteTokenizer::eos; }
  [[nodiscard]] std::string describe() const override {
    return std::to_string(corpus_->files().size()) + " files, " + std::to_string(documents()) + " documents, " + std::to_string(total_tokens()) +
           " bytes of text";
  }
  [[nodiscard]] std::string place(std::uint64_t i) const override { return corpus_->where(i); }
  [[nodiscard]] std::unique_ptr<TokenReader> reader(ReadFile read_file) const override { return std::make_unique<ByteReader>(corpus_, std::move(read_file)); }
  [[nodiscard]] std::vector<DataFile> files() const override { return corpus_->files(); }

 private:
  std::shared_ptr<const Corpus> corpus_;
};

}  // namespace

std::shared_ptr<const TokenDocuments> byte_documents(std::shared_ptr<const Corpus> corpus) { return std::make_shared<ByteDocuments>(std::move(corpus)); }

}  // namespace troupe
