#include "src/tokenizer/tokenizer_steps.hpp"

#include <utility>

namespace troupe {
namespace {

constexpr std::size_t deepest = 8;
/// GPT-2's pattern, which ByteLevel uses by itself.
constexpr std::string_view gpt2_pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::shared_ptr<const SplitPattern> regex(const JsonPlace& where, std::string_view pattern) {
  auto compiled = SplitPattern::compile(pattern, PatternSyntax::oniguruma);
  if (!compiled) where.fail(compiled.error().message);
  return std::move(*compiled);
}

/// One character of a set that the Unicode table has of the original's own code.
std::shared_ptr<const SplitPattern> one_of(const JsonPlace& where, std::string_view set) { return regex(where, "\\p{" + std::string(set) + "}"); }

/// {"String": …} or {"Regex": …}
std::shared_ptr<const SplitPattern> pattern_of(const JsonPlace& section) {
  if (const JsonPlace text = section["String"]; !text.is_null()) {
    if (text.string().empty()) text.fail("is empty");
    auto compiled = SplitPattern::literal(text.string());
    if (!compiled) text.fail(compiled.error().message);
    return std::move(*compiled);
  }
  const JsonPlace pattern = section["Regex"];
  return regex(pattern, pattern.string());
}

SplitBehaviour behaviour_of(const JsonPlace& name) {
  const std::string& text = name.string();
  if (text == "Removed") return SplitBehaviour::removed;
  if (text == "Isolated") return SplitBehaviour::isolated;
  if (text == "MergedWithPrevious") return SplitBehaviour::merged_with_previous;
  if (text == "MergedWithNext") return SplitBehaviour::merged_with_next;
  if (text == "Contiguous") return SplitBehaviour::contiguous;
  name.fail("\"" + text + "\" is not supported; Removed, Isolated, MergedWithPrevious, MergedWithNext and Contiguous are");
}

void add_normalizers(const JsonPlace& section, std::size_t depth, std::vector<NormalizerStep>& steps) {
  if (section.is_null()) return;
  if (depth > deepest) section.fail("sequences are nested too deep");
  const JsonPlace named = section["type"];
  const std::string& type = named.string();
  using Kind = NormalizerStep::Kind;
  using Form = NormalizerStep::Form;
  if (type == "Sequence") {
    const JsonPlace inner = section["normalizers"];
    for (std::size_t i = 0; i < inner.size(); ++i) add_normalizers(inner.at(i), depth + 1, steps);
  } else if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    steps.push_back({.kind = Kind::form, .form = type == "NFC" ? Form::nfc : type == "NFD" ? Form::nfd : type == "NFKC" ? Form::nfkc : Form::nfkd});
  } else if (type == "Prepend") {
    steps.push_back({.kind = Kind::prepend, .content = section["prepend"].string()});
  } else if (type == "Replace") {
    steps.push_back({.kind = Kind::replace, .content = section["content"].string(), .pattern = pattern_of(section["pattern"])});
  } else if (type == "Strip") {
    steps.push_back({.kind = Kind::strip, .left = section["strip_left"].boolean(true), .right = section["strip_right"].boolean(true)});
  } else {
    named.fail("\"" + type + "\" is not supported; NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip and Sequence are");
  }
}

PreTokenizerStep metaspace_of(const JsonPlace& section) {
  PreTokenizerStep step{.kind = PreTokenizerStep::Kind::metaspace};
  step.replacement = section["replacement"].string();
  if (step.replacement.empty()) section["replacement"].fail("is empty");
  step.cut = section["split"].boolean(true);
  if (const JsonPlace scheme = section["prepend_scheme"]; !scheme.is_null()) {
    const std::string& name = scheme.string();
    if (name == "always")
      step.prepend = PreTokenizerStep::Prepend::always;
    else if (name == "first")
      step.prepend = PreTokenizerStep::Prepend::first;
    else if (name == "never")
      step.prepend = PreTokenizerStep::Prepend::never;
    else
      scheme.fail("\"" + name + "\" is not supported; always, first and never are");
  } else if (!section["add_prefix_space"].boolean(true)) {
    step.prepend = PreTokenizerStep::Prepend::never;
  }
  return step;
}

void add_pre_tokenizers(const JsonPlace& section, std::size_t depth, std::vector<PreTokenizerStep>& steps) {
  if (section.is_null()) return;
  if (depth > deepest) section.fail("sequences are nested too deep");
  const JsonPlace named = section["type"];
  const std::string& type = named.string();
  using Kind = PreTokenizerStep::Kind;
  const auto split = [&](std::shared_ptr<const SplitPattern> pattern, SplitBehaviour behaviour, bool invert = false) {
    steps.push_back({.kind = Kind::split, .pattern = std::move(pattern), .behaviour = behaviour, .invert = invert});
  };
  if (type == "Sequence") {
    const JsonPlace inner = section["pretokenizers"];
    for (std::size_t i = 0; i < inner.size(); ++i) add_pre_tokenizers(inner.at(i), depth + 1, steps);
  } else if (type == "ByteLevel") {
    if (section["add_prefix_space"].boolean(true)) steps.push_back({.kind = Kind::prefix_space});
    if (section["use_regex"].boolean(true)) split(regex(named, gpt2_pattern), SplitBehaviour::isolated);
    steps.push_back({.kind = Kind::byte_level});
  } else if (type == "Split") {
    split(pattern_of(section["pattern"]), behaviour_of(section["behavior"]), section["invert"].boolean(false));
  } else if (type == "Digits") {
    const bool each = section["individual_digits"].boolean(false);
    split(one_of(named, "x-numeric"), each ? SplitBehaviour::isolated : SplitBehaviour::contiguous);
  } else if (type == "Punctuation") {
    const JsonPlace behaviour = section["behavior"];
    split(one_of(named, "x-punctuation"), behaviour.is_null() ? SplitBehaviour::isolated : behaviour_of(behaviour));
  } else if (type == "Whitespace") {
    split(regex(named, R"(\p{x-word}+|[^\p{x-word}\s]+)"), SplitBehaviour::removed, true);
  } else if (type == "WhitespaceSplit") {
    split(regex(named, R"(\s)"), SplitBehaviour::removed);
  } else if (type == "CharDelimiterSplit") {
    auto compiled = SplitPattern::literal(section["delimiter"].string());
    if (!compiled) named.fail(compiled.error().message);
    split(std::move(*compiled), SplitBehaviour::removed);
  } else if (type == "Metaspace") {
    steps.push_back(metaspace_of(section));
  } else {
    named.fail("\"" + type +
               "\" is not supported; ByteLevel, Split, Digits, Punctuation, Whitespace, WhitespaceSplit, CharDelimiterSplit, Metaspace and Sequence are");
  }
}

void add_decoders(const JsonPlace& section, std::size_t depth, std::vector<DecoderStep>& steps) {
  if (section.is_null()) return;
  if (depth > deepest) section.fail("sequences are nested too deep");
  const JsonPlace named = section["type"];
  const std::string& type = named.string();
  using Kind = DecoderStep::Kind;
  const auto count = [&](const char* key) {
    const JsonPlace number = section[key];
    return number.is_null() ? std::size_t{0} : static_cast<std::size_t>(number.id());
  };
  if (type == "Sequence") {
    const JsonPlace inner = section["decoders"];
    for (std::size_t i = 0; i < inner.size(); ++i) add_decoders(inner.at(i), depth + 1, steps);
  } else if (type == "ByteLevel") {
    steps.push_back({.kind = Kind::byte_level});
  } else if (type == "ByteFallback") {
    steps.push_back({.kind = Kind::byte_fallback});
  } else if (type == "Fuse") {
    steps.push_back({.kind = Kind::fuse});
  } else if (type == "Strip") {
    steps.push_back({.kind = Kind::strip, .content = section["content"].string(), .start = count("start"), .stop = count("stop")});
  } else if (type == "Replace") {
    const JsonPlace pattern = section["pattern"]["String"];
    steps.push_back({.kind = Kind::replace, .pattern = pattern.string(), .content = section["content"].string()});
  } else if (type == "Metaspace") {
    const PreTokenizerStep like = metaspace_of(section);
    steps.push_back({.kind = Kind::metaspace, .pattern = like.replacement, .prepended = like.prepend != PreTokenizerStep::Prepend::never});
  } else {
    named.fail("\"" + type + "\" is not supported; ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace and Sequence are");
  }
}

void read_template(const JsonPlace& section, TokenizerParts& parts) {
  const JsonPlace single = section["single"], special = section["special_tokens"];
  bool text_seen = false;
  for (std::size_t i = 0; i < single.size(); ++i) {
    const JsonPlace item = single.at(i);
    if (!item["Sequence"].is_null()) {
      if (std::exchange(text_seen, true)) item.fail("the text stands twice");
      continue;
    }
    const JsonPlace named = item["SpecialToken"]["id"];
    const JsonPlace ids = special[named.string().c_str()]["ids"];
    if (ids.is_null()) named.fail("\"" + named.string() + "\" is not in special_tokens");
    for (std::size_t k = 0; k < ids.size(); ++k) (text_seen ? parts.after : parts.before).push_back(ids.at(k).id());
  }
}

}  // namespace

std::vector<NormalizerStep> read_normalizer(const JsonPlace& section) {
  std::vector<NormalizerStep> steps;
  add_normalizers(section, 0, steps);
  return steps;
}

std::vector<PreTokenizerStep> read_pre_tokenizer(const JsonPlace& section, bool& byte_level) {
  std::vector<PreTokenizerStep> steps;
  add_pre_tokenizers(section, 0, steps);
  byte_level = !steps.empty() && steps.back().kind == PreTokenizerStep::Kind::byte_level;
  if (byte_level) steps.pop_back();
  return steps;
}

std::vector<DecoderStep> read_decoder(const JsonPlace& section) {
  std::vector<DecoderStep> steps;
  add_decoders(section, 0, steps);
  return steps;
}

void read_post_processor(const JsonPlace& section, TokenizerParts& parts) {
  if (section.is_null()) return;
  const JsonPlace named = section["type"];
  const std::string& type = named.string();
  if (type == "ByteLevel") return;  // about offsets alone
  if (type == "Sequence") {
    const JsonPlace inner = section["processors"];
    for (std::size_t i = 0; i < inner.size(); ++i) {
      if (const JsonPlace of = inner.at(i)["type"]; of.string() == "Sequence") of.fail("a Sequence in a Sequence is not supported");
      read_post_processor(inner.at(i), parts);
    }
  } else if (type == "TemplateProcessing") {
    read_template(section, parts);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    if (section["cls"].size() != 2 || section["sep"].size() != 2) section.fail("cls and sep must be a token and its id");
    parts.before.push_back(section["cls"].at(1).id());
    parts.after.push_back(section["sep"].at(1).id());
  } else {
    named.fail("\"" + type + "\" is not supported; ByteLevel, TemplateProcessing, BertProcessing, RobertaProcessing and Sequence are");
  }
}

}  // namespace troupe
