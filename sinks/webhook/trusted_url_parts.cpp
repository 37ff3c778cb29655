/*
 * trusted_url_parts.cpp: UrlParts (delivery/http/url_parts.h) without libcurl, for the library that makes messages
 * only. CREATE SERVER has checked the URLs with libcurl's parser, and the worker, which alone connects, checks them
 * with it again. So here they need only be taken apart.
 */
#include <algorithm>
#include <cctype>

#include "delivery/http/url_parts.h"

namespace outbox {

/* What stands before the first of `ends` in the text, or all of it; the text is what is left. */
static std::string take_until(std::string_view &text, const char *ends) {
  std::string taken(text.substr(0, text.find_first_of(ends)));
  text.remove_prefix(taken.size());
  return taken;
}

UrlParts::UrlParts(const std::string &url) {
  std::string_view rest = url;
  const size_t end = rest.find("://");
  if (end == rest.npos)
    return;
  scheme = rest.substr(0, end);
  std::transform(scheme.begin(), scheme.end(), scheme.begin(), [](unsigned char c) { return std::tolower(c); });
  rest.remove_prefix(end + 3);
  const std::string authority = take_until(rest, "/?#");
  const size_t bracket = authority.find(']');
  const size_t colon = authority.find(':', bracket == authority.npos ? 0 : bracket);
  host = authority.substr(0, colon);
  if (colon != authority.npos)
    port = authority.substr(colon + 1);
  path = take_until(rest, "?#");
  if (path.empty())
    path = "/";
  if (rest.starts_with('?'))
    query = take_until(rest, "#").substr(1);
  is_valid = !host.empty();
}

}  // namespace outbox
