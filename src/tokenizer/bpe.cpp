#include "src/tokenizer/bpe.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <queue>

#include "src/tokenizer/code_points.hpp"
#include "src/tokenizer/pieces.hpp"

namespace troupe {
namespace {

constexpr std::size_t few = 48;  // up to here a scan for the best pair is cheaper than a heap

/// What a token of the byte alphabet spells; nothing where one of its characters stands for no byte.
std::optional<std::string> spelt_bytes(const ByteAlphabet& alphabet, std::string_view token) {
  std::string bytes;
  for (std::size_t at = 0; at < token.size();) {
    const int byte = alphabet.byte_of(next_code_point(token, at));
    if (byte < 0) return std::nullopt;
    bytes += static_cast<char>(static_cast<unsigned char>(byte));
  }
  return bytes;
}

std::string hexadecimal(unsigned byte) {
  static constexpr std::string_view digits = "0123456789ABCDEF";
  return std::string("<0x") + digits[byte >> 4U] + digits[byte & 15U] + ">";
}

}  // namespace

Result<std::shared_ptr<const BpeModel>> BpeModel::build(const Vocabulary& vocabulary, const BpeOptions& options) {
  std::shared_ptr<BpeModel> model(new BpeModel);
  model->options_ = options;
  model->bytes_.fill(missing);
  TokenTable spelt;  // by the tokens as they are spelt
  spelt.reserve(vocabulary.tokens.size());
  model->whole_.reserve(vocabulary.tokens.size());
  const ByteAlphabet alphabet;
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const std::string& token = vocabulary.tokens[i];
    if (vocabulary.ids[i] < 0) return Error{"model.vocab: the id of \"" + token + "\" is " + std::to_string(vocabulary.ids[i])};
    if (valid_utf8_prefix(token) != token.size()) return Error{"model.vocab: token " + std::to_string(vocabulary.ids[i]) + " is not UTF-8"};
    spelt.add(token, vocabulary.ids[i]);
    if (!options.byte_level) {
      model->whole_.add(token, vocabulary.ids[i]);
    } else if (const auto bytes = spelt_bytes(alphabet, token)) {
      model->whole_.add(*bytes, vocabulary.ids[i]);
      if (bytes->size() == 1) model->bytes_[static_cast<unsigned char>(bytes->front())] = vocabulary.ids[i];
    }
  }
  if (!options.byte_level) {
    model->index_code_points(vocabulary);
    for (unsigned byte = 0; byte < 256; ++byte) model->bytes_[byte] = spelt.find(hexadecimal(byte)).value_or(missing);
  }
  if (options.unk_token) {
    const auto unk = spelt.find(*options.unk_token);
    if (!unk) return Error{"model.unk_token: \"" + *options.unk_token + "\" is not in model.vocab"};
    model->unk_ = *unk;
  }
  model->merges_.reserve(vocabulary.merges.size());
  if (!options.byte_level) model->joined_.assign(0x40000, false);
  for (std::size_t i = 0; i < vocabulary.merges.size(); ++i) {
    const auto& [left, right] = vocabulary.merges[i];
    const auto a = spelt.find(left), b = spelt.find(right), both = spelt.find(left + right);
    if (a && b && both) {
      model->merges_.add(*a, *b, {static_cast<std::uint32_t>(i), *both});
      if (!model->joined_.empty()) model->note_neighbours(left + right);
    } else if (!options.ignore_merges) {
      return Error{"model.merges[" + std::to_string(i) + "]: \"" + left + "\" and \"" + right + "\": \"" +
                   (!a   ? left
                    : !b ? right
                         : left + right) +
                   "\" is not in model.vocab"};
    }
  }
  return std::shared_ptr<const BpeModel>(std::move(model));
}

Result<std::shared_ptr<const BpeModel>> BpeModel::from_ranks(const std::vector<std::string>& tokens) {
  std::shared_ptr<BpeModel> model(new BpeModel);
  model->options_ = {.byte_level = true, .ignore_merges = true};
  model->bytes_.fill(missing);
  model->whole_.reserve(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    if (!model->whole_.add(tokens[i], id)) return Error{"rank " + std::to_string(i) + ": these bytes have a rank already"};
    if (tokens[i].size() == 1) model->bytes_[static_cast<unsigned char>(tokens[i].front())] = id;
  }
  for (unsigned byte = 0; byte < 256; ++byte)
    if (model->bytes_[byte] == missing) return Error{"no token is the single byte " + hexadecimal(byte)};
  model->merges_.reserve(tokens.size() * 2);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::string_view token = tokens[i];
    for (std::size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = model->whole_.find(token.substr(0, cut)), right = model->whole_.find(token.substr(cut));
      if (left && right) model->merges_.add(*left, *right, {static_cast<std::uint32_t>(i), static_cast<std::int32_t>(i)});
    }
  }
  return std::shared_ptr<const BpeModel>(std::move(model));
}

void BpeModel::index_code_points(const Vocabulary& vocabulary) {
  block_of_.assign(code_point_end >> 8U, missing);
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const std::string& token = vocabulary.tokens[i];
    std::size_t at = 0;
    if (token.empty()) continue;
    const char32_t point = next_code_point(token, at);
    if (at != token.size()) continue;
    std::int32_t& block = block_of_[point >> 8U];
    if (block == missing) {
      block = static_cast<std::int32_t>(blocks_.size());
      blocks_.emplace_back().fill(missing);
    }
    blocks_[static_cast<std::size_t>(block)][point & 0xffU] = vocabulary.ids[i];
  }
}

void BpeModel::note_neighbours(std::string_view token) {
  if (token.find("<0x") != std::string_view::npos) {  // a token of bytes may merge: what stands in a text then says nothing
    joined_.assign(joined_.size(), true);
    return;
  }
  char32_t left = 0;
  for (std::size_t at = 0; at < token.size();) {
    const bool first = at == 0;
    const char32_t right = next_code_point(token, at);
    if (!first) joined_[pair_of(left, right)] = true;
    left = right;
  }
}

std::size_t BpeModel::part_end(std::string_view piece, std::size_t from) const noexcept {
  if (joined_.empty()) return piece.size();
  std::size_t at = from;
  char32_t left = next_code_point(piece, at);
  bool known = of_code_point(left) != missing;
  while (at < piece.size()) {
    const std::size_t place = at;
    const char32_t right = next_code_point(piece, at);
    const bool right_known = of_code_point(right) != missing;
    if (known && right_known && !joined_[pair_of(left, right)]) return place;
    left = right;
    known = right_known;
  }
  return piece.size();
}

std::int32_t BpeModel::of_code_point(char32_t point) const noexcept {
  const std::int32_t block = block_of_[point >> 8U];
  return block == missing ? missing : blocks_[static_cast<std::size_t>(block)][point & 0xffU];
}

void BpeModel::symbols_of(std::string_view piece, std::vector<std::int32_t>& out) const {
  if (options_.byte_level && unk_ == missing) {
    for (const char c : piece)
      if (const std::int32_t id = bytes_[static_cast<unsigned char>(c)]; id != missing) out.push_back(id);
    return;
  }
  bool unknown = false;  // an unknown token is due; it is written when the next known symbol or the end comes
  const auto known = [&](std::int32_t id) {
    if (std::exchange(unknown, false)) out.push_back(unk_);
    out.push_back(id);
  };
  const auto not_known = [&] {
    if (unk_ == missing) return;
    if (unknown && !options_.fuse_unk) out.push_back(unk_);
    unknown = true;
  };
  for (std::size_t at = 0; at < piece.size();) {
    if (options_.byte_level) {
      const std::int32_t id = bytes_[static_cast<unsigned char>(piece[at++])];
      id != missing ? known(id) : not_known();
      continue;
    }
    const std::size_t begin = at;
    const std::int32_t id = of_code_point(next_code_point(piece, at));
    if (id != missing) {
      known(id);
      continue;
    }
    const std::string_view spelt = piece.substr(begin, at - begin);
    const bool fallback = options_.byte_fallback && std::ranges::all_of(spelt, [&](char c) { return bytes_[static_cast<unsigned char>(c)] != missing; });
    if (!fallback) {
      not_known();
      continue;
    }
    for (const char c : spelt) out.push_back(bytes_[static_cast<unsigned char>(c)]);  // before an unknown token that is due, as the original
  }
  if (unknown) out.push_back(unk_);
}

BpeEncoder::BpeEncoder(std::shared_ptr<const BpeModel> model) : model_(std::move(model)) {}

void BpeEncoder::encode(std::string_view piece, std::vector<std::int32_t>& out) {
  if (piece.size() > longest_key) {
    const auto whole = model_->options().ignore_merges ? model_->whole(piece) : std::nullopt;
    if (whole) return out.push_back(*whole);
    for (std::size_t begin = 0; begin < piece.size();) {
      const std::size_t end = model_->part_end(piece, begin);
      encode_part(piece.substr(begin, end - begin), false, out);
      begin = end;
    }
    return;
  }
  encode_part(piece, model_->options().ignore_merges, out);
}

void BpeEncoder::encode_part(std::string_view piece, bool as_whole, std::vector<std::int32_t>& out) {
  Known* slot = nullptr;
  if (piece.size() <= longest_key) {
    slot = &known_[XXH3_64bits_withSeed(piece.data(), piece.size(), as_whole ? 1 : 0) & (slots - 1)];
    if (slot->bytes == piece.size() && slot->as_whole == as_whole && std::memcmp(slot->key.data(), piece.data(), piece.size()) == 0) {
      out.insert(out.end(), slot->ids.begin(), slot->ids.begin() + slot->count);
      return;
    }
  }
  symbols_.clear();
  if (const auto id = as_whole ? model_->whole(piece) : std::nullopt) symbols_.push_back(*id);
  if (symbols_.empty()) {
    model_->symbols_of(piece, symbols_);
    merge(symbols_);
  }
  out.insert(out.end(), symbols_.begin(), symbols_.end());
  if (slot == nullptr || symbols_.size() > most_ids) return;
  slot->bytes = static_cast<std::uint8_t>(piece.size());
  slot->as_whole = as_whole;
  slot->count = static_cast<std::uint8_t>(symbols_.size());
  std::memcpy(slot->key.data(), piece.data(), piece.size());
  std::ranges::copy(symbols_, slot->ids.begin());
}

void BpeEncoder::merge(std::vector<std::int32_t>& symbols) {
  if (symbols.size() < 2) return;
  symbols.size() <= few ? merge_few(symbols) : merge_many(symbols);
}

void BpeEncoder::merge_few(std::vector<std::int32_t>& symbols) {
  const MergeTable& merges = model_->merges();
  std::size_t count = symbols.size();
  next_.resize(count);  // of a symbol with the one after it
  for (std::size_t i = 0; i + 1 < count; ++i) next_[i] = merges.find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i)
      if (next_[i].rank < next_[best].rank) best = i;
    if (next_[best].rank == MergeTable::none) break;
    symbols[best] = next_[best].id;
    for (std::size_t i = best + 1; i + 1 < count; ++i) {
      symbols[i] = symbols[i + 1];
      next_[i] = next_[i + 1];
    }
    --count;
    if (best > 0) next_[best - 1] = merges.find(symbols[best - 1], symbols[best]);
    if (best + 1 < count) next_[best] = merges.find(symbols[best], symbols[best + 1]);
  }
  symbols.resize(count);
}

void BpeEncoder::merge_many(std::vector<std::int32_t>& symbols) {
  struct Node {
    std::int32_t id;
    std::uint32_t previous, next;
  };
  struct Candidate {
    std::uint32_t rank, at;
    std::int32_t left, right, id;
    bool operator<(const Candidate& other) const noexcept { return rank != other.rank ? rank > other.rank : at > other.at; }  // the best on top
  };
  constexpr std::uint32_t end = 0xffffffffU;
  constexpr std::int32_t gone = -1;
  const MergeTable& merges = model_->merges();
  std::vector<Node> nodes(symbols.size());
  for (std::uint32_t i = 0; i < nodes.size(); ++i) nodes[i] = {symbols[i], i == 0 ? end : i - 1, i + 1 == nodes.size() ? end : i + 1};
  std::vector<Candidate> candidates;
  const auto candidate = [&](std::uint32_t at, auto&& take) {
    const Node& node = nodes[at];
    if (node.next == end) return;
    const auto found = merges.find(node.id, nodes[node.next].id);
    if (found.rank != MergeTable::none) take(Candidate{found.rank, at, node.id, nodes[node.next].id, found.id});
  };
  for (std::uint32_t i = 0; i < nodes.size(); ++i) candidate(i, [&](const Candidate& c) { candidates.push_back(c); });
  std::priority_queue<Candidate> queue(std::less<Candidate>{}, std::move(candidates));
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Node& node = nodes[best.at];
    if (node.id != best.left || node.next == end || nodes[node.next].id != best.right) continue;  // one of the two was merged since
    node.id = best.id;
    nodes[node.next].id = gone;
    node.next = nodes[node.next].next;
    if (node.next != end) nodes[node.next].previous = best.at;
    const auto push = [&](const Candidate& c) { queue.push(c); };
    if (node.previous != end) candidate(node.previous, push);
    candidate(best.at, push);
  }
  std::size_t count = 0;
  for (const Node& node : nodes)
    if (node.id != gone) symbols[count++] = node.id;
  symbols.resize(count);
}

}  // namespace troupe
