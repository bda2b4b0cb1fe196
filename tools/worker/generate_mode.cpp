#include "tools/worker/generate_mode.hpp"

#include <charconv>
#include <cstdio>

#include "src/data/byte_tokenizer.hpp"
#include "src/model/generate.hpp"
#include "tools/worker/loaded_model.hpp"
#include "tools/worker/terminal_text.hpp"

namespace troupe {
namespace {

Result<std::vector<std::int32_t>> prompt_of(const GenerateRequest& request, std::int64_t vocabulary, const std::shared_ptr<const Tokenizer>& tokenizer) {
  std::vector<std::int32_t> prompt;
  if (request.ids.empty() && tokenizer) {
    if (tokenizer->parts().bos) prompt.push_back(*tokenizer->parts().bos);
    TokenEncoder(tokenizer).encode(request.prompt, {}, prompt);
    return prompt;
  }
  if (request.ids.empty()) {
    if (vocabulary < ByteTokenizer::vocab_size)
      return Error{"the vocabulary of " + std::to_string(vocabulary) + " is smaller than the byte tokenizer's " + std::to_string(ByteTokenizer::vocab_size) +
                   ": give token ids with --ids"};
    prompt.push_back(ByteTokenizer::bos);
    for (const char byte : request.prompt) prompt.push_back(static_cast<unsigned char>(byte));
    return prompt;
  }
  for (std::string_view rest = request.ids; !rest.empty();) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    std::int32_t id = 0;
    const auto [read, error] = std::from_chars(rest.data(), rest.data() + end, id);
    if (error != std::errc{} || read != rest.data() + end)
      return Error{"--ids \"" + request.ids + "\": expected token ids with commas between, such as 1,42,7"};
    prompt.push_back(id);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return prompt;
}

Result<void> print_text(const GenerateRequest& request) {
  const auto storage = make_posix_storage();
  auto loaded = load_model(request.checkpoint, request.overrides, *storage);
  if (!loaded) return loaded.error();
  LoadedModel& source = **loaded;
  const auto prompt = prompt_of(request, source.model->description().vocab_size, source.tokenizer);
  if (!prompt) return prompt.error();
  const std::size_t needed = prompt->size() + request.tokens;
  if (source.longest > 0 && needed > static_cast<std::size_t>(source.longest))
    std::fprintf(stderr, "warning: prompt and text take %zu positions, the model was trained for %lld\n", needed, static_cast<long long>(source.longest));
  const bool ids = !request.ids.empty();
  std::fputs((ids ? request.ids : terminal_text(request.prompt)).c_str(), stdout);
  GenerateOptions options{
      .count = request.tokens, .temperature = request.temperature, .top_p = request.top_p, .seed = request.seed, .stop_tokens = source.stop_tokens};
  std::string text;
  std::optional<StreamDecoder> decoder;
  if (source.tokenizer) decoder.emplace(source.tokenizer);
  options.told = [&](std::int32_t token) {
    if (!ids && decoder)
      text += decoder->next(token);
    else if (!ids && token < ByteTokenizer::bos)
      text += static_cast<char>(token);
    if (ids) std::printf(",%d", token);
    std::fflush(stdout);
  };
  (void)generate(*source.model, *source.device, *source.attention, *prompt, options);
  if (decoder) text += decoder->finish();
  return print_last(terminal_text(text));
}

}  // namespace

int run_generate(const GenerateRequest& request) {
  if (auto printed = print_text(request); !printed) {
    std::fprintf(stderr, "troupe generate: %s\n", printed.error().message.c_str());
    return exit_failed;
  }
  return exit_done;
}

}  // namespace troupe
