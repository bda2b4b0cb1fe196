#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace troupe {

/// What is wrong in a JSON file; the message names the place.
struct JsonProblem : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A value in a JSON file with the way to it, so that whoever finds it wrong can say where. The document outlives it.
class JsonPlace {
 public:
  JsonPlace(const nlohmann::json& value, std::string path) : value_(&value), path_(std::move(path)) {}
  [[nodiscard]] const nlohmann::json& value() const noexcept { return *value_; }
  [[noreturn]] void fail(const std::string& why) const { throw JsonProblem(path_ + ": " + why); }

  [[nodiscard]] bool is_null() const noexcept { return value_->is_null(); }
  /// The member `key`, null where there is none.
  [[nodiscard]] JsonPlace operator[](const char* key) const {
    static const nlohmann::json null;
    if (!value_->is_object()) fail(std::string("expected an object, found ") + value_->type_name());
    const auto found = value_->find(key);
    return {found == value_->end() ? null : *found, path_.empty() ? key : path_ + "." + key};
  }
  [[nodiscard]] JsonPlace at(std::size_t i) const { return {(*value_)[i], path_ + "[" + std::to_string(i) + "]"}; }
  /// Elements of an array; a missing one is empty.
  [[nodiscard]] std::size_t size() const {
    if (is_null()) return 0;
    if (!value_->is_array()) fail(std::string("expected an array, found ") + value_->type_name());
    return value_->size();
  }
  [[nodiscard]] const std::string& string() const {
    if (!value_->is_string()) fail(std::string("expected a string, found ") + value_->type_name());
    return value_->get_ref<const std::string&>();
  }
  [[nodiscard]] bool boolean(bool otherwise) const {
    if (is_null()) return otherwise;
    if (!value_->is_boolean()) fail(std::string("expected true or false, found ") + value_->type_name());
    return value_->get<bool>();
  }
  /// An id: 0 … 2^31 - 2.
  [[nodiscard]] std::int32_t id() const {
    if (!value_->is_number_integer() || value_->get<std::int64_t>() < 0 || value_->get<std::int64_t>() > 0x7ffffffe)
      fail("expected an id from 0 to 2147483646, found " + value_->dump());
    return value_->get<std::int32_t>();
  }

 private:
  const nlohmann::json* value_;
  std::string path_;
};

}  // namespace troupe
