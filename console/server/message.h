/* message.h: a request, as libmicrohttpd has parsed it, and what it is answered. */
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace console {

struct Request {
  std::string method, path;
  std::map<std::string, std::string, std::less<>> query, form, cookies;
  std::map<std::string, std::string, std::less<>> headers; /* names in lower case */
  std::string peer;                                        /* its address, without the port */

  static std::string_view find(const std::map<std::string, std::string, std::less<>> &in, std::string_view name) {
    const auto found = in.find(name);
    return found == in.end() ? std::string_view() : std::string_view(found->second);
  }
  std::string_view asks(std::string_view name) const { return find(query, name); }
  std::string_view posts(std::string_view name) const { return find(form, name); }
  std::string_view header(std::string_view name) const { return find(headers, name); }
};

struct Response {
  unsigned status = 200;
  std::string type = "text/html; charset=utf-8";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
  /* More of the body, as it comes: adds to the text, and returns whether there will be more. It may wait for seconds.
   */
  std::function<bool(std::string &)> more = {};
  bool may_be_cached = false; /* the style sheet and the script, which are the same for everybody */
};

/* One line for who is no browser, or no friend. */
inline Response plain_text(unsigned status, std::string_view line) {
  return {.status = status, .type = "text/plain; charset=utf-8", .body = std::string(line) + "\n"};
}

}  // namespace console
