#include "src/data/json_line.hpp"

#include <nlohmann/json.hpp>

namespace troupe {
namespace {

/// Keeps one string of the top level and nothing else, so that a long record costs its own length only.
class TextFinder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit TextFinder(const std::string& key) : key_(key) {}
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
    if (depth_ == 0) return stop(expected("a string"));
    if (wanted()) {
      text = std::move(value);
      found = true;
    }
    return true;
  }
  bool start_object(std::size_t) override {
    if (wanted()) return stop(quoted() + " is an object, expected a string");
    ++depth_;
    return true;
  }
  bool key(string_t& name) override {
    text_next_ = depth_ == 1 && arrays_ == 0 && name == key_;
    return !text_next_ || !found || stop(quoted() + " stands twice");
  }
  bool end_object() override {
    --depth_;
    text_next_ = false;
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ == 0) return stop(expected("an array"));
    if (wanted()) return stop(quoted() + " is an array, expected a string");
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
  [[nodiscard]] std::string quoted() const { return "\"" + key_ + "\""; }
  [[nodiscard]] std::string expected(const std::string& found_kind) const { return "expected an object {" + quoted() + ": …}, found " + found_kind; }
  [[nodiscard]] bool wanted() const noexcept { return text_next_ && depth_ == 1 && arrays_ == 0; }
  bool scalar(const char* kind) {
    if (depth_ == 0) return stop(expected(kind));
    return !wanted() || stop(quoted() + " is " + kind + ", expected a string");
  }
  bool stop(std::string why) {
    problem.text = std::move(why);
    return false;
  }
  const std::string& key_;
  std::size_t depth_ = 0, arrays_ = 0;
  bool text_next_ = false;
};

/// The string under `key`; sets what is wrong where there is none.
std::string string_of(const nlohmann::json& object, const std::string& key, const std::string& where, std::string& wrong) {
  const auto found = object.find(key);
  if (found != object.end() && found->is_string()) return found->get<std::string>();
  if (wrong.empty())
    wrong = where + (found == object.end() ? " has no key \"" + key + "\"" : ": \"" + key + "\" is " + found->type_name() + ", expected a string");
  return {};
}

std::string turns_of(const nlohmann::json& record, RecordForm form, std::vector<Turn>& turns) {
  std::string wrong;
  if (!record.is_object()) return std::string("expected an object, found ") + record.type_name();
  if (form == RecordForm::prompt_completion) {
    for (const char* key : {"prompt", "completion"}) turns.push_back({key, string_of(record, key, "the object", wrong)});
    return wrong.empty() && turns.back().content.empty() ? "\"completion\" is empty: there is nothing to train on" : wrong;
  }
  const auto messages = record.find("messages");
  if (messages == record.end()) return "the object has no key \"messages\"";
  if (!messages->is_array()) return std::string("\"messages\" is ") + messages->type_name() + ", expected an array";
  bool answers = false;
  for (const auto& message : *messages) {
    const std::string where = "message " + std::to_string(turns.size());
    if (!message.is_object()) return where + " is " + message.type_name() + ", expected an object";
    std::string role = string_of(message, "role", where, wrong);
    turns.push_back({std::move(role), string_of(message, "content", where, wrong)});
    if (!wrong.empty()) return wrong;
    answers = answers || turns.back().is_answer();
  }
  return answers ? "" : "no message is of the role \"assistant\": there is nothing to train on";
}

std::string packed_turns_of(std::string_view line, JsonLineProblem& problem, RecordForm form) {
  nlohmann::json record;
  try {
    record = nlohmann::json::parse(line.begin(), line.end());
  } catch (const nlohmann::json::parse_error& error) {
    problem = {error.what(), error.byte == 0 ? 0 : error.byte - 1};
    return {};
  } catch (const nlohmann::json::exception& error) {  // a number that no double holds
    problem.text = error.what();
    return {};
  }
  std::vector<Turn> turns;
  problem.text = turns_of(record, form, turns);
  return problem.text.empty() ? pack_turns(turns) : std::string();
}

}  // namespace

std::string text_of_json_line(std::string_view line, JsonLineProblem& problem, const RecordRules& rules) {
  if (rules.form != RecordForm::text) return packed_turns_of(line, problem, rules.form);
  TextFinder finder(rules.text_key);
  if (!nlohmann::json::sax_parse(line.begin(), line.end(), &finder)) {
    problem = std::move(finder.problem);
    return {};
  }
  if (!finder.found) problem.text = "the object has no key \"" + rules.text_key + "\"";
  return std::move(finder.text);
}

}  // namespace troupe
