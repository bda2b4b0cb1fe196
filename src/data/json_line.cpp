#include "src/data/json_line.hpp"

#include <nlohmann/json.hpp>

namespace troupe {
namespace {

/// Keeps the top-level "text" and nothing else, so that a long record costs its own length only.
class TextFinder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::string text;
  bool found = false;
  JsonLineProblem problem;

  bool null() override { return scalar("null"); }
  bool boolean(bool) override { return scalar("a boolean"); }
  bool number_integer(number_integer_t) override { return scalar("a number"); }
  bool number_unsigned(number_unsigned_t) override { return scalar("a number"); }
  bool number_float(number_float_t, const string_t&) override { return scalar("a number"); }
  bool binary(binary_t&) override { return scalar("binary"); }
  bool string(string_t& value) override {
    if (depth_ == 0) return stop("expected an object {\"text\": …}, found a string");
    if (wanted()) {
      text = std::move(value);
      found = true;
    }
    return true;
  }
  bool start_object(std::size_t) override {
    if (wanted()) return stop("\"text\" is an object, expected a string");
    ++depth_;
    return true;
  }
  bool key(string_t& name) override {
    text_next_ = depth_ == 1 && arrays_ == 0 && name == "text";
    return !text_next_ || !found || stop("\"text\" stands twice");
  }
  bool end_object() override {
    --depth_;
    text_next_ = false;
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ == 0) return stop("expected an object {\"text\": …}, found an array");
    if (wanted()) return stop("\"text\" is an array, expected a string");
    ++arrays_;
    return true;
  }
  bool end_array() override {
    --arrays_;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    problem = {error.what(), position == 0 ? 0 : position - 1};
    return false;
  }

 private:
  [[nodiscard]] bool wanted() const noexcept { return text_next_ && depth_ == 1 && arrays_ == 0; }
  bool scalar(const char* kind) {
    if (depth_ == 0) return stop(std::string("expected an object {\"text\": …}, found ") + kind);
    return !wanted() || stop(std::string("\"text\" is ") + kind + ", expected a string");
  }
  bool stop(std::string why) {
    problem.text = std::move(why);
    return false;
  }
  std::size_t depth_ = 0, arrays_ = 0;
  bool text_next_ = false;
};

}  // namespace

std::string text_of_json_line(std::string_view line, JsonLineProblem& problem) {
  TextFinder finder;
  if (!nlohmann::json::sax_parse(line.begin(), line.end(), &finder)) {
    problem = std::move(finder.problem);
    return {};
  }
  if (!finder.found) problem.text = "the object has no key \"text\"";
  return std::move(finder.text);
}

}  // namespace troupe
