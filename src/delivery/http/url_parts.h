/* url_parts.h: a URL as libcurl parses it. */
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <curl/curl.h>

namespace outbox {

class UrlParts {
public:
  explicit UrlParts(const std::string &url);
  CURLUcode code() const { return code_; }
  /* Empty if the URL has no such part or is invalid. */
  std::string get(CURLUPart part, unsigned flags = 0) const;
  std::string host() const { return get(CURLUPART_HOST); }

private:
  std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> url_;
  CURLUcode code_;
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
