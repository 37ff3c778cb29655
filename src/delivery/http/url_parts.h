/* url_parts.h: a URL as libcurl parses it. */
#pragma once

#include <string>
#include <string_view>

namespace outbox {

struct UrlParts {
  explicit UrlParts(const std::string &url);

  bool is_valid = false;
  bool has_bad_port = false;
  /* Empty if the URL has no such part or is invalid. */
  std::string scheme, user, host, port, path, query, fragment;
  /* The port, or an empty text for the one that the scheme has by default. */
  std::string unusual_port() const;
};

/* "https://example.com:8443": the part of a URL before its path, query or fragment. Empty if the URL does not start
 * with SCHEME://HOST: libcurl also accepts "https:/x" and "https:///x", with x as the host. */
std::string_view origin_of(std::string_view url);

enum class OriginFault { None, NoHost, Port, User, NotAscii };
/* Checks the origin of an http or https URL as libcurl parses it, alone and within the whole URL. A host that is not
 * ASCII is refused, because libcurl would convert it according to the server's locale, or not at all. */
OriginFault origin_fault(const std::string &url);
constexpr const char *host_is_not_ascii = "Its host is not written in ASCII.";
constexpr const char *write_punycode = "Write an internationalized name in punycode: xn--bcher-kva.example.";

}  // namespace outbox
