/*
 * html.h: makes HTML. html() is the only function that does, and its first argument is a literal of this program:
 * each
 * {} in it becomes an argument, whose text is escaped unless it is Html itself. The compiler refuses a {} that is
 * neither in the text of an element nor in a quoted attribute, and one in href, action or src that is no Link: in
 * these places escaping would not be enough.
 */
#pragma once

#include <charconv>
#include <concepts>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

/* A throw is how a consteval function says, to the compiler, why it does not compile. */
/* NOLINTBEGIN(bugprone-std-exception-baseclass) */
namespace console {

/* A path of this program with its query, percent-encoded. */
class Link {
public:
  class Path { /* a literal of this program */
  public:
    consteval Path(const char *text) : text_(text) { /* NOLINT(google-explicit-constructor) */
      if (!text_.starts_with('/') || text_.starts_with("//"))
        throw "a path begins with one /";
    }
    std::string_view text() const { return text_; }

  private:
    std::string_view text_;
  };
  explicit Link(Path path, std::initializer_list<std::pair<std::string_view, std::string_view>> query = {});
  const std::string &text() const { return text_; }
  /* Adds a part of the query, unless its value is empty. */
  Link &add(std::string_view name, std::string_view value);

private:
  std::string text_;
};

template <class... Args> class Markup;
class Html;
template <class... Args> Html html(Markup<std::type_identity_t<Args>...> markup, const Args &...args);

class Html {
public:
  Html() = default;
  Html &operator+=(const Html &more) {
    text_ += more.text_;
    return *this;
  }
  bool empty() const { return text_.empty(); }
  const std::string &text() const { return text_; }

private:
  template <class... Args> friend Html html(Markup<std::type_identity_t<Args>...> markup, const Args &...args);

  void put(const Html &part) { text_ += part.text_; }
  void put(const Link &link) { escape(link.text()); }
  void put(std::string_view text) { escape(text); }
  template <std::integral N> void put(N number) {
    char digits[24];
    text_.append(digits, std::to_chars(digits, digits + sizeof(digits), number).ptr);
  }
  void escape(std::string_view text);

  std::string text_;
};

/* A literal whose every {} stands in a place that its argument fits. */
template <class... Args> class Markup {
public:
  consteval Markup(const char *text) : text_(text) { /* NOLINT(google-explicit-constructor): a literal is one */
    constexpr bool is_link[] = {std::is_same_v<Args, Link>..., false},
                   is_html[] = {std::is_same_v<Args, Html>..., false};
    enum { Text, Tag, Value } state = Text;
    size_t n = 0;
    std::string_view attribute; /* the one whose value we are in */
    for (size_t i = 0; i < text_.size(); i++) {
      const char c = text_[i];
      if (text_.substr(i).starts_with("{}")) {
        if (n >= sizeof...(Args))
          throw "more {} than arguments";
        if (state == Tag || (state == Value && is_html[n]))
          throw "{} is neither in a text nor in a quoted attribute";
        if (state == Value && is_link[n] != leads(attribute))
          throw "href, action and src take a Link, and nothing else does";
        if (state == Value && !is_link[n] && !is_harmless(attribute))
          throw "no {} in this attribute";
        n++;
        i++;
      } else if (state == Text && c == '<') {
        state = Tag;
        const std::string_view tag = text_.substr(i + 1);
        if (!tag.empty() && tag[0] >= 'A' && tag[0] <= 'Z')
          throw "tags are in small letters";
        if ((tag.starts_with("script") && !tag.starts_with("script src=")) || tag.starts_with("style"))
          throw "script and style are files of their own";
      } else if (state == Tag && c == '>') {
        state = Text;
      } else if (state == Tag && c == '"') {
        state = Value;
        attribute = before(i);
      } else if (state == Tag && (c == '\'' || c == '\t' || c == '\n')) {
        throw "a tag is one line, with double quotes";
      } else if (state == Value && c == '"') {
        state = Tag;
      }
    }
    if (n != sizeof...(Args))
      throw "fewer {} than arguments";
    if (state != Text)
      throw "a tag has no end";
  }
  std::string_view text() const { return text_; }

private:
  static consteval bool is_in(std::string_view name, std::initializer_list<std::string_view> names) {
    for (const std::string_view each : names)
      if (each == name)
        return true;
    return false;
  }
  static consteval bool leads(std::string_view name) { return is_in(name, {"href", "action", "src"}); }
  static consteval bool is_harmless(std::string_view name) {
    return is_in(name, {"class", "title", "name", "value", "points", "aria-label", "data-refreshes"});
  }
  /* The name of the attribute whose value begins with the quote at this place: it stands between a space and ="  */
  consteval std::string_view before(size_t quote) const {
    if (quote == 0 || text_[quote - 1] != '=')
      throw "an attribute is written name=\"value\"";
    size_t begin = quote - 1;
    while (begin > 0 && ((text_[begin - 1] >= 'a' && text_[begin - 1] <= 'z') ||
                         (text_[begin - 1] >= 'A' && text_[begin - 1] <= 'Z') || text_[begin - 1] == '-'))
      begin--;
    if (begin == quote - 1 || begin == 0 || text_[begin - 1] != ' ')
      throw "an attribute is written name=\"value\"";
    return text_.substr(begin, quote - 1 - begin);
  }
  std::string_view text_;
};

template <class... Args> Html html(Markup<std::type_identity_t<Args>...> markup, const Args &...args) {
  Html made;
  std::string_view rest = markup.text();
  [[maybe_unused]] const auto place = [&](const auto &arg) {
    const size_t at = rest.find("{}");
    made.text_ += rest.substr(0, at);
    rest.remove_prefix(at + 2);
    made.put(arg);
  };
  (place(args), ...);
  made.text_ += rest;
  return made;
}

}  // namespace console
/* NOLINTEND(bugprone-std-exception-baseclass) */
