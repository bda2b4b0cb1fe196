#include "src/tokenizer/pre_tokenizer.hpp"

#include <algorithm>

#include "src/tokenizer/code_points.hpp"

namespace troupe {
namespace {

/// Each piece written anew by `write(piece's text, out)`.
template <class Write>
void rewrite(PieceList& list, Write write) {
  std::string out;
  out.reserve(list.text.size() + 16);
  for (Piece& piece : list.pieces) {
    const std::size_t begin = out.size();
    write(list.text.substr(piece.begin, piece.end - piece.begin), piece.begin, out);
    piece = {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(out.size())};
  }
  list.owned = std::move(out);
  list.text = list.owned;
}

const ByteAlphabet& alphabet() {
  static const ByteAlphabet made;
  return made;
}

void metaspace(const PreTokenizerStep& step, PieceList& list) {
  rewrite(list, [&](std::string_view text, std::uint32_t begin, std::string& out) {
    const bool wanted = step.prepend == PreTokenizerStep::Prepend::always || (step.prepend == PreTokenizerStep::Prepend::first && list.at_start && begin == 0);
    if (wanted && !text.starts_with(step.replacement) && !text.starts_with(' ')) out += step.replacement;
    for (const char c : text) {
      if (c == ' ')
        out += step.replacement;
      else
        out += c;
    }
  });
  if (!step.cut) return;
  list.next.clear();
  for (const Piece piece : list.pieces) {
    for (std::size_t begin = piece.begin; begin < piece.end;) {
      const bool marked = list.text.substr(begin).starts_with(step.replacement);
      const std::size_t end = std::min<std::size_t>(list.text.find(step.replacement, begin + (marked ? step.replacement.size() : 1)), piece.end);
      list.next.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)});
      begin = end;
    }
  }
  list.pieces.swap(list.next);
}

}  // namespace

ByteAlphabet::ByteAlphabet() {
  for (int& byte : bytes_) byte = -1;
  char32_t spare = 256;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    characters_[byte] = printable ? byte : spare++;
    bytes_[characters_[byte]] = static_cast<int>(byte);
  }
}

PreTokenizer::PreTokenizer(const std::vector<PreTokenizerStep>& steps) : steps_(steps) {
  for (const auto& step : steps) matchers_.push_back(step.pattern ? std::make_unique<SplitMatcher>(step.pattern) : nullptr);
}

void PreTokenizer::run(PieceList& list) {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const PreTokenizerStep& step = steps_[i];
    switch (step.kind) {
      case PreTokenizerStep::Kind::split: split(step, *matchers_[i], list); break;
      case PreTokenizerStep::Kind::metaspace: metaspace(step, list); break;
      case PreTokenizerStep::Kind::prefix_space:
        rewrite(list, [](std::string_view text, std::uint32_t, std::string& out) {
          if (!text.starts_with(' ')) out += ' ';
          out += text;
        });
        break;
      case PreTokenizerStep::Kind::byte_level:
        rewrite(list, [](std::string_view text, std::uint32_t, std::string& out) {
          for (const char byte : text) append_code_point(out, alphabet().character_of(static_cast<unsigned char>(byte)));
        });
        break;
    }
  }
}

void PreTokenizer::split(const PreTokenizerStep& step, SplitMatcher& matcher, PieceList& list) {
  step.pattern->classify(list.text, classified_);
  const auto& offsets = classified_.offsets;
  const bool ascii = offsets.empty();
  const auto byte_of = [&](std::size_t point) { return ascii ? static_cast<std::uint32_t>(point) : offsets[point]; };
  std::size_t point = 0;
  const auto point_of = [&](std::uint32_t byte) {  // pieces come in order
    if (ascii) return static_cast<std::size_t>(byte);
    while (offsets[point] < byte) ++point;
    return point;
  };
  list.next.clear();
  const bool plain = step.behaviour == SplitBehaviour::isolated;  // then matches and what lies between are pieces alike
  for (const Piece whole : list.pieces) {
    const std::size_t begin = point_of(whole.begin), end = point_of(whole.end);
    parts_.clear();
    const auto part = [&](std::size_t from, std::size_t to, bool match) {
      if (to == from) return;
      const Piece piece{byte_of(from), byte_of(to)};
      if (plain)
        list.next.push_back(piece);
      else
        parts_.push_back({piece, match != step.invert});
    };
    std::size_t done = begin, from = begin, match_begin = 0, match_end = 0;
    while (from < end && matcher.find(classified_, begin, from, end, match_begin, match_end)) {
      part(done, match_begin, false);
      part(match_begin, match_end, true);
      done = match_end;
      from = match_end > match_begin ? match_end : match_end + 1;
    }
    part(done, end, false);
    if (!plain) join_parts(step.behaviour, list.next);
  }
  list.pieces.swap(list.next);
}

void PreTokenizer::join_parts(SplitBehaviour behaviour, std::vector<Piece>& out) const {
  const std::size_t first = out.size();
  bool previous = false;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const auto& [piece, match] = parts_[i];
    const bool has_last = out.size() > first, has_next = i + 1 < parts_.size();
    if (behaviour == SplitBehaviour::removed) {
      if (!match) out.push_back(piece);
    } else if (behaviour == SplitBehaviour::merged_with_next) {
      const bool join = match && has_next && !parts_[i + 1].match;
      out.push_back(join ? Piece{piece.begin, parts_[++i].piece.end} : piece);
    } else {
      const bool join = behaviour == SplitBehaviour::contiguous ? match == previous : match && !previous;
      if (join && has_last)
        out.back().end = piece.end;
      else
        out.push_back(piece);
    }
    previous = match;
  }
}

}  // namespace troupe
