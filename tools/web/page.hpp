#pragma once
#include <map>
#include <string>
#include <string_view>

namespace troupe {

/// The files of tools/web, by name: "timeline/page.html". Embedded by the build; any thread.
[[nodiscard]] const std::map<std::string_view, std::string_view>& web_assets();

/// A page as one file that needs no other: FOLDER/page.html with its style sheets and scripts in it, in their order.
/// Throws std::out_of_range where a file that it names is not there.
[[nodiscard]] std::string whole_page(const std::string& folder);

/// Puts `text` into the page's element <script id="ID">, so that nothing in it can end that element.
void put_json(std::string& page, std::string_view id, std::string_view json);
/// The same for bytes, as base64.
void put_bytes(std::string& page, std::string_view id, std::string_view bytes);

}  // namespace troupe
