#include "src/data/row_sampler.hpp"

#include <algorithm>
#include <stdexcept>

#include "src/data/byte_tokenizer.hpp"  // ignored_label

namespace troupe {
namespace {

constexpr std::uint64_t stride = 1024;
constexpr std::size_t epochs_held = 2;  // a row may span two

/// Without the marks that the documents' tokenizer does not have.
SamplerOptions fitting(SamplerOptions options, const TokenDocuments& documents) {
  options.add_bos = options.add_bos && documents.bos();
  options.add_eos = options.add_eos && documents.eos();
  return options;
}

std::uint64_t marks_of(const SamplerOptions& options) noexcept {
  return (options.add_bos ? 1U : 0U) + (options.add_eos && !options.mask_document_boundaries ? 1U : 0U);
}

}  // namespace

std::uint64_t positions_of_pass(const TokenDocuments& documents, const SamplerOptions& options) noexcept {
  return documents.total_tokens() + documents.documents() * marks_of(fitting(options, documents));
}

RowSampler::RowSampler(std::shared_ptr<const Corpus> corpus, const SamplerOptions& options, ReadFile read_file)
    : RowSampler(byte_documents(std::move(corpus)), options, std::move(read_file)) {}

RowSampler::RowSampler(std::shared_ptr<const TokenDocuments> documents, const SamplerOptions& options, ReadFile read_file)
    : documents_(std::move(documents)), options_(fitting(options, *documents_)), reader_(documents_->reader(std::move(read_file))), marks_(marks_of(options_)) {
  positions_ = positions_of_pass(*documents_, options_);
}

std::uint64_t RowSampler::positions_of(std::uint64_t document) const noexcept { return documents_->tokens(document) + marks_; }

RowSampler::Epoch& RowSampler::epoch(std::uint64_t number) {
  if (const auto known = epochs_.find(number); known != epochs_.end()) return known->second;
  if (epochs_.size() == epochs_held) epochs_.erase(number > epochs_.begin()->first ? epochs_.begin() : std::prev(epochs_.end()));
  const std::uint64_t documents = documents_->documents();
  Epoch fresh{DocumentOrder(documents, options_.seed, number, options_.shuffle), {}};
  fresh.begins.reserve(documents / stride + 1);
  std::uint64_t position = 0;
  for (std::uint64_t i = 0; i < documents; ++i) {
    if (i % stride == 0) fresh.begins.push_back(position);
    position += positions_of(fresh.order.at(i));
  }
  return epochs_.emplace(number, std::move(fresh)).first->second;
}

RowSampler::Cursor RowSampler::find(std::uint64_t position) {
  Cursor cursor{position / positions_, 0, position % positions_};
  const Epoch& in = epoch(cursor.epoch);
  const auto block = std::upper_bound(in.begins.begin(), in.begins.end(), cursor.within) - in.begins.begin() - 1;
  cursor.index = static_cast<std::uint64_t>(block) * stride;
  cursor.within -= in.begins[static_cast<std::size_t>(block)];
  for (std::uint64_t length = 0; cursor.within >= (length = positions_of(in.order.at(cursor.index))); ++cursor.index) cursor.within -= length;
  return cursor;
}

void RowSampler::next_document(Cursor& cursor) {
  cursor.within = 0;
  do {
    if (++cursor.index < documents_->documents()) continue;
    cursor.index = 0;
    ++cursor.epoch;
  } while (positions_of(epoch(cursor.epoch).order.at(cursor.index)) == 0);  // a document may have no token
}

void RowSampler::tokens_of(std::uint64_t document, std::uint64_t first, std::span<std::int32_t> out) {
  const std::uint64_t bos = options_.add_bos ? 1 : 0, text = documents_->tokens(document);
  std::size_t at = 0;
  if (bos != 0 && first == 0 && !out.empty()) out[at++] = *documents_->bos();
  const std::uint64_t begin = first + at - bos;
  const std::uint64_t count = std::min<std::uint64_t>(out.size() - at, begin < text ? text - begin : 0);
  if (count > 0) reader_->read(document, begin, out.subspan(at, count));
  at += count;
  if (at < out.size()) out[at++] = *documents_->eos();
}

std::int32_t RowSampler::first_token(const Cursor& at) {
  std::int32_t token = 0;
  const std::uint64_t document = epoch(at.epoch).order.at(at.index);
  tokens_of(document, 0, {&token, 1});
  if (!options_.add_bos || documents_->tokens(document) == 0) return token;
  std::int32_t own = 0;
  reader_->read(document, 0, {&own, 1});  // where the document's own first token is no target, the mark before it is none
  return is_target(own) ? token : not_a_target(token);
}

std::vector<RowPiece> RowSampler::pieces(std::uint64_t k) {
  std::vector<RowPiece> found;
  Cursor cursor = find(k * options_.seq_len);
  for (std::uint64_t filled = 0; filled < options_.seq_len; next_document(cursor)) {
    const std::uint64_t document = epoch(cursor.epoch).order.at(cursor.index);
    const std::uint64_t count = std::min(options_.seq_len - filled, positions_of(document) - cursor.within);
    found.push_back({cursor.epoch, document, cursor.within, count});
    filled += count;
  }
  return found;
}

std::uint64_t RowSampler::row(std::uint64_t k, std::span<std::int32_t> tokens, std::span<std::int32_t> labels, std::span<std::int32_t> starts) {
  const std::size_t length = options_.seq_len;
  if (tokens.size() != length || labels.size() != length || (!starts.empty() && starts.size() != length))
    throw std::invalid_argument("RowSampler::row: tokens, labels and starts must hold seq_len values");
  std::vector<std::int32_t> piece;
  Cursor cursor = find(k * length);
  std::uint64_t valid = 0;
  for (std::size_t filled = 0; filled < length;) {
    const std::uint64_t document = epoch(cursor.epoch).order.at(cursor.index);
    const std::uint64_t all = documents_->tokens(document) + (options_.add_bos ? 1U : 0U) + (options_.add_eos ? 1U : 0U);
    const std::size_t count = std::min<std::uint64_t>(length - filled, positions_of(document) - cursor.within);
    const bool last_follows = cursor.within + count < all;  // the token after the last position is in this document
    piece.resize(count + (last_follows ? 1 : 0));
    tokens_of(document, cursor.within, piece);
    for (std::size_t i = 0; i < count; ++i) tokens[filled + i] = id_of_token(piece[i]);
    for (std::size_t i = 1; i < piece.size(); ++i) {
      labels[filled + i - 1] = is_target(piece[i]) ? piece[i] : ignored_label;
      valid += is_target(piece[i]) ? 1 : 0;
    }
    if (!starts.empty()) std::ranges::fill(starts.subspan(filled, count), static_cast<std::int32_t>(filled));
    filled += count;
    cursor.within += count;
    if (cursor.within < positions_of(document)) continue;
    next_document(cursor);
    if (last_follows) continue;
    const std::int32_t next = options_.mask_document_boundaries ? not_a_target(0) : first_token(cursor);
    labels[filled - 1] = is_target(next) ? next : ignored_label;
    valid += is_target(next) ? 1 : 0;
  }
  return valid;
}

}  // namespace troupe
