/* url_parts.h: a URL as libcurl understands it. */
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
  /* Empty when there is none, or the whole is no URL. */
  std::string get(CURLUPart part, unsigned flags = 0) const;
  std::string host() const { return get(CURLUPART_HOST); }

private:
  std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> url_;
  CURLUcode code_;
};

/* "https://example.com:8443" of a URL: all before its path, query or fragment. Empty where it does not begin with
 * SCHEME://HOST: libcurl also takes "https:/x" and "https:///x", and then x is the host. */
std::string_view origin_of(std::string_view url);

enum class OriginFault { None, NoHost, Port, User, NotAscii };
/* What is wrong with the origin of an http or https URL, as libcurl reads it, alone and with what follows. A host
 * that is not ASCII would be converted by libcurl in the way of the server's locale, or not at all. */
OriginFault origin_fault(const std::string &url);
constexpr const char *host_is_not_ascii = "Its host is not written in ASCII.";
constexpr const char *write_punycode = "Write an internationalized name in punycode: xn--bcher-kva.example.";

}  // namespace outbox
