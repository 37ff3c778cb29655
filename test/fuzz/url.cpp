/* url.cpp: no event chooses the host, changes the path's segments, or brings a character that no URL has. */
#include "test/fuzz/fuzz.h"

#include <algorithm>

#include "delivery/http/network.h"
#include "delivery/http/url_parts.h"
#include "sinks/webhook/webhook_url.h"
#include "test/fuzz/event.h"

using namespace outbox;

namespace {

size_t count(std::string_view text, char wanted) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), wanted));
}

}  // namespace

void fuzz::one_input(std::string_view data) {
  Input input(data);
  std::string text = without_nul(input.line());
  (void)origin_fault(text);
  WebhookUrl url;
  bool good = accepted([&] { url = WebhookUrl::parse("url", text); });
  if (!good)
    return;

  HOLDS(text.starts_with(url.origin()) && origin_of(text) == url.origin() &&
        origin_fault(url.origin()) == OriginFault::None);
  HOLDS(url.origin().find_first_of("@${}\\ ") == std::string::npos);
  UrlParts origin(url.origin());
  HOLDS(origin.is_valid && !origin.host.empty());
  HOLDS(url.is_https() == (origin.scheme == "https"));
  (void)literal_address(origin.host);

  Event event(input);
  std::string sent;
  if (!accepted([&] { sent = url.render(event.raw); })) {
    HOLDS(url.has_variables());
    return;
  }
  HOLDS(url.has_variables() == (text.find("${") != std::string::npos));
  HOLDS(url.has_variables() || sent == text);
  HOLDS(sent.starts_with(url.origin()) && sent.size() <= 8000);
  std::string_view rest = std::string_view(sent).substr(url.origin().size());
  HOLDS(std::all_of(rest.begin(), rest.end(), [](char c) {
    return c > 0x20 && c < 0x7F && std::string_view("\\\"<>^`{|}#").find(c) == std::string_view::npos;
  }));
  /* As libcurl reads it: the same host, the same segments. */
  UrlParts parts(sent);
  HOLDS(parts.is_valid && parts.host == origin.host && parts.port == origin.port);
  HOLDS(parts.user.empty() && parts.fragment.empty());
  std::string path = parts.path, given;
  for (size_t i = 0; i < text.size(); i++) /* variables may have such characters in their names */
    if (text.compare(i, 2, "${") == 0)
      i = text.find('}', i);
    else
      given += text[i];
  given = given.substr(url.origin().size());
  given.resize(std::min(given.size(), given.find('?')));
  HOLDS(count(path, '/') == std::max<size_t>(count(given, '/'), 1));
  HOLDS((path + "/").find("/../") == std::string::npos && (path + "/").find("/./") == std::string::npos);
}
