#include <algorithm>

#include "src/tokenizer/code_points.hpp"
#include "src/tokenizer/json_place.hpp"
#include "src/tokenizer/tokenizer_file.hpp"
#include "src/tokenizer/tokenizer_steps.hpp"

namespace troupe {
namespace {

constexpr std::int32_t largest_gap = 1'000'000;  ///< ids beyond the number of tokens: a table by id must not be made huge by one number

BpeModel::Vocabulary vocabulary_of(const JsonPlace& model) {
  BpeModel::Vocabulary found;
  const JsonPlace vocab = model["vocab"];
  if (!vocab.value().is_object()) vocab.fail(std::string("expected an object of tokens and ids, found ") + vocab.value().type_name());
  found.tokens.reserve(vocab.value().size());
  for (const auto& [token, id] : vocab.value().items()) {
    found.tokens.push_back(token);
    found.ids.push_back(JsonPlace(id, "model.vocab[\"" + token + "\"]").id());
  }
  const JsonPlace merges = model["merges"];
  if (merges.is_null()) merges.fail("is missing: a BPE model needs its list of merges");
  found.merges.reserve(merges.size());
  for (std::size_t i = 0; i < merges.value().size(); ++i) {
    const auto& entry = merges.value()[i];
    if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string()) {
      found.merges.emplace_back(entry[0].get<std::string>(), entry[1].get<std::string>());
      continue;
    }
    if (!entry.is_string()) merges.at(i).fail("expected \"a b\" or [\"a\", \"b\"], found " + entry.dump());
    const auto& text = entry.get_ref<const std::string&>();
    const auto blank = text.find(' ');
    if (blank == std::string::npos || text.find(' ', blank + 1) != std::string::npos)
      merges.at(i).fail("expected two tokens with a blank between, found \"" + text + "\"");
    found.merges.emplace_back(text.substr(0, blank), text.substr(blank + 1));
  }
  return found;
}

BpeOptions options_of(const JsonPlace& model, bool byte_level) {
  if (const JsonPlace type = model["type"]; !type.is_null() && type.string() != "BPE") type.fail("\"" + type.string() + "\" is not supported; BPE is");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const JsonPlace affix = model[key]; !affix.is_null() && !affix.string().empty())
      affix.fail("\"" + affix.string() + "\": tokens with an affix are not supported");
  if (const JsonPlace dropout = model["dropout"]; !dropout.is_null() && !(dropout.value().is_number() && dropout.value().get<double>() == 0))
    dropout.fail("merges that are left out at random are not supported");
  BpeOptions options{.byte_level = byte_level,
                     .ignore_merges = model["ignore_merges"].boolean(false),
                     .byte_fallback = model["byte_fallback"].boolean(false),
                     .fuse_unk = model["fuse_unk"].boolean(false)};
  if (const JsonPlace unk = model["unk_token"]; !unk.is_null()) options.unk_token = unk.string();
  return options;
}

/// By id. Ids are given by the file; those that stand for nothing are empty.
std::vector<TokenText> texts_of(const BpeModel::Vocabulary& vocabulary) {
  const std::int32_t largest = vocabulary.ids.empty() ? -1 : std::ranges::max(vocabulary.ids);
  if (largest > static_cast<std::int64_t>(vocabulary.ids.size()) + largest_gap)
    throw JsonProblem("model.vocab: id " + std::to_string(largest) + " in a vocabulary of " + std::to_string(vocabulary.ids.size()) + " tokens");
  std::vector<TokenText> texts(static_cast<std::size_t>(largest) + 1);
  for (std::size_t i = 0; i < vocabulary.ids.size(); ++i) texts[static_cast<std::size_t>(vocabulary.ids[i])].text = vocabulary.tokens[i];
  return texts;
}

void read_added(const JsonPlace& list, const BpeModel::Vocabulary& vocabulary, TokenizerParts& parts) {
  TokenTable known;
  known.reserve(vocabulary.tokens.size() + list.size());
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) known.add(vocabulary.tokens[i], vocabulary.ids[i]);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const JsonPlace entry = list.at(i);
    AddedToken token;
    token.id = entry["id"].id();
    token.content = entry["content"].string();
    token.special = entry["special"].boolean(false);
    token.single_word = entry["single_word"].boolean(false);
    token.lstrip = entry["lstrip"].boolean(false);
    token.rstrip = entry["rstrip"].boolean(false);
    token.normalized = entry["normalized"].boolean(!token.special);
    if (token.content.empty()) continue;
    const auto before = known.find(token.content);
    if (before && *before != token.id)
      entry["id"].fail("\"" + token.content + "\" is " + std::to_string(token.id) + " here and " + std::to_string(*before) + " in model.vocab or before");
    known.add(token.content, token.id);
    const auto place = static_cast<std::size_t>(token.id);
    if (place > parts.texts.size() + largest_gap)
      entry["id"].fail(std::to_string(token.id) + " is far beyond the vocabulary of " + std::to_string(parts.texts.size()));
    if (place >= parts.texts.size()) parts.texts.resize(place + 1);
    if (!parts.texts[place].text.empty() && parts.texts[place].text != token.content)
      entry["id"].fail(std::to_string(token.id) + " is \"" + token.content + "\" here and \"" + parts.texts[place].text + "\" in model.vocab or before");
    parts.texts[place] = {token.content, true};
    parts.added.push_back(std::move(token));
  }
}

void read_parts(const JsonPlace& root, TokenizerParts& parts) {
  bool byte_level = false;
  parts.normalizer = read_normalizer(root["normalizer"]);
  parts.pre_tokenizer = read_pre_tokenizer(root["pre_tokenizer"], byte_level);
  parts.decoder = read_decoder(root["decoder"]);
  read_post_processor(root["post_processor"], parts);
  const JsonPlace model = root["model"];
  if (model.is_null()) model.fail("is missing");
  const auto vocabulary = vocabulary_of(model);
  auto built = BpeModel::build(vocabulary, options_of(model, byte_level));
  if (!built) throw JsonProblem(built.error().message);
  parts.model = std::move(*built);
  if (vocabulary.merges.empty() && std::ranges::any_of(vocabulary.tokens, [](const std::string& token) { return token.size() > 4; }))
    parts.warnings.push_back(parts.name + ": model.merges is empty, so that no token of several characters is ever made");
  parts.texts = texts_of(vocabulary);
  read_added(root["added_tokens"], vocabulary, parts);
  for (const auto* around : {&parts.before, &parts.after})
    for (const std::int32_t id : *around)
      if (static_cast<std::size_t>(id) >= parts.texts.size())
        root["post_processor"].fail("id " + std::to_string(id) + " is beyond the vocabulary of " + std::to_string(parts.texts.size()));
  if (parts.before.size() == 1) parts.bos = parts.before.front();
  if (parts.after.size() == 1) parts.eos = parts.after.front();
}

nlohmann::json parsed(std::string_view text) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    throw JsonProblem(error.what());
  }
}

std::optional<std::int32_t> token_named(const JsonPlace& entry, const TokenizerParts& parts) {
  if (entry.is_null()) return std::nullopt;
  const JsonPlace content = entry.value().is_object() ? entry["content"] : entry;
  const std::string& wanted = content.string();
  for (const AddedToken& token : parts.added)
    if (token.content == wanted) return token.id;
  for (std::size_t id = 0; id < parts.texts.size(); ++id)
    if (parts.texts[id].text == wanted && !wanted.empty()) return static_cast<std::int32_t>(id);
  content.fail("\"" + wanted + "\" is no token of " + parts.name);
}

}  // namespace

Result<TokenizerParts> read_tokenizer_json(std::string_view text, const std::string& name) {
  TokenizerParts parts{.name = name};
  try {
    const nlohmann::json document = parsed(text);
    read_parts({document, ""}, parts);
  } catch (const JsonProblem& problem) {
    return Error{name + ": " + problem.what()};
  } catch (const nlohmann::json::exception& problem) {
    return Error{name + ": " + problem.what()};
  }
  return parts;
}

Result<void> read_tokenizer_config(std::string_view text, const std::string& name, TokenizerParts& parts) {
  try {
    const nlohmann::json document = parsed(text);
    const JsonPlace root(document, "");
    if (const auto bos = token_named(root["bos_token"], parts)) parts.bos = bos;
    if (const auto eos = token_named(root["eos_token"], parts)) parts.eos = eos;
  } catch (const JsonProblem& problem) {
    return Error{name + ": " + problem.what()};
  }
  return {};
}

}  // namespace troupe
