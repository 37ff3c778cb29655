/*
 * statement.h: a statement for the server. Like HTML it is a literal of this program with a {} for each value, which
 * is quoted by libpq. What is sent is what the page shows, so that a person can paste it.
 */
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace console {

class Sql {
public:
  class Literal {
  public:
    consteval Literal(const char *text) : text_(text) {} /* NOLINT(google-explicit-constructor) */
    std::string_view text() const { return text_; }

  private:
    std::string_view text_;
  };

  template <class... Values>
  explicit(false) Sql(Literal text, const Values &...values) : text_(text.text()), values_{std::string(values)...} {}
  Sql &operator+=(const Sql &more) {
    text_ += more.text_;
    values_.insert(values_.end(), more.values_.begin(), more.values_.end());
    return *this;
  }
  /* With a {} for each value. */
  const std::string &text() const { return text_; }
  const std::vector<std::string> &values() const { return values_; }

private:
  std::string text_;
  std::vector<std::string> values_;
};

}  // namespace console
