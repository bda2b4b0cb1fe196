#include "tools/web/page.hpp"

#include <openssl/evp.h>

#include <stdexcept>

namespace troupe {
namespace {

std::string_view asset(const std::string& name) {
  const auto found = web_assets().find(name);
  if (found == web_assets().end()) throw std::out_of_range("no page has a file " + name);
  return found->second;
}

/// Replaces each `before` NAME `after` by open + the file + close.
std::string with_files(const std::string& page, const std::string& folder, std::string_view before, std::string_view after, std::string_view open,
                       std::string_view close) {
  std::string result;
  std::size_t reached = 0;
  while (true) {
    const std::size_t found = page.find(before, reached);
    if (found == std::string::npos) return result + page.substr(reached);
    const std::size_t name = found + before.size(), end = page.find(after, name);
    result.append(page, reached, found - reached).append(open).append(asset(folder + "/" + page.substr(name, end - name))).append(close);
    reached = end + after.size();
  }
}

void put(std::string& page, std::string_view id, std::string_view text) {
  const std::string start = "id=\"" + std::string(id) + "\">";
  const std::size_t found = page.find(start);
  if (found == std::string::npos) throw std::out_of_range("the page has no element " + std::string(id));
  page.insert(found + start.size(), text);
}

}  // namespace

std::string whole_page(const std::string& folder) {
  const std::string page = with_files(std::string(asset(folder + "/page.html")), folder, "<link rel=\"stylesheet\" href=\"", "\">", "<style>\n", "</style>");
  return with_files(page, folder, "<script src=\"", "\"></script>", "<script>\n", "</script>");
}

void put_json(std::string& page, std::string_view id, std::string_view json) {
  std::string safe;
  safe.reserve(json.size());
  for (const char letter : json) {
    if (letter == '<')
      safe += "\\u003c";  // only strings hold one
    else
      safe += letter;
  }
  put(page, id, safe);
}

void put_bytes(std::string& page, std::string_view id, std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');
  // In pieces whose length 3 divides, for the function takes an int.
  constexpr std::size_t piece = std::size_t{3} << 20U;
  std::size_t written = 0;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    const std::string_view part = bytes.substr(at, piece);
    written += static_cast<std::size_t>(EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data() + written),
                                                        reinterpret_cast<const unsigned char*>(part.data()), static_cast<int>(part.size())));
  }
  text.resize(written);
  put(page, id, text);
}

}  // namespace troupe
