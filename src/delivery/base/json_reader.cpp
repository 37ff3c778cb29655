/* json_reader.cpp: nlohmann's parser calls the functions of this class and builds nothing itself. */
#include "delivery/base/json_reader.h"

#include <nlohmann/json.hpp>

namespace outbox {
namespace {

using nlohmann::json;

class ValueReader final : public nlohmann::json_sax<json> {
public:
  explicit ValueReader(const std::function<void(const JsonPath &, const JsonValue &)> &on_value)
      : on_value_(on_value) {}

  bool null() override { return value(JsonValue::Kind::Null, {}); }
  bool boolean(bool is) override { return value(JsonValue::Kind::Boolean, is ? "true" : "false"); }
  bool number_integer(json::number_integer_t number) override {
    return value(JsonValue::Kind::Number, std::to_string(number));
  }
  bool number_unsigned(json::number_unsigned_t number) override {
    return value(JsonValue::Kind::Number, std::to_string(number));
  }
  bool number_float(json::number_float_t number, const std::string &) override {
    return value(JsonValue::Kind::Number, json(number).dump());
  }
  bool string(std::string &text) override { return value(JsonValue::Kind::Text, std::move(text)); }
  bool binary(json::binary_t &) override { return false; } /* not in JSON's text */
  bool start_object(size_t) override { return value(JsonValue::Kind::Object, {}) && enter(); }
  bool key(std::string &name) override {
    path_.back() = std::move(name);
    return true;
  }
  bool end_object() override { return leave(); }
  bool start_array(size_t) override { return value(JsonValue::Kind::Array, {}) && enter(); }
  bool end_array() override { return leave(); }
  bool parse_error(size_t, const std::string &, const json::exception &error) override {
    if (auto *invalid = dynamic_cast<const json::parse_error *>(&error))
      error_at_ = invalid->byte > 0 ? invalid->byte - 1 : 0;
    else
      value(JsonValue::Kind::Number, {});
    return false;
  }

  std::optional<size_t> error_at() const { return error_at_; }

private:
  bool value(JsonValue::Kind kind, std::string text) {
    on_value_(path_, {kind, std::move(text)});
    return true;
  }
  bool enter() {
    path_.emplace_back();
    return true;
  }
  bool leave() {
    path_.pop_back();
    return true;
  }

  const std::function<void(const JsonPath &, const JsonValue &)> &on_value_;
  JsonPath path_;
  std::optional<size_t> error_at_;
};

}  // namespace

std::optional<size_t> read_json(const std::string &text,
                                const std::function<void(const JsonPath &, const JsonValue &)> &on_value) {
  ValueReader reader(on_value);
  json::sax_parse(text, &reader);
  return reader.error_at();
}

}  // namespace outbox
