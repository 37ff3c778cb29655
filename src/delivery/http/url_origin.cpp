/* url_origin.cpp: the part of a URL that says where requests go to. */
#include "delivery/http/url_parts.h"

#include <algorithm>

namespace outbox {

std::string UrlParts::unusual_port() const {
  return port == (scheme == "https" ? "443" : "80") ? std::string() : port;
}

std::string_view origin_of(std::string_view url) {
  size_t scheme = url.find("://");
  if (scheme == url.npos)
    return {};
  size_t host = scheme + 3, end = std::min(url.find_first_of("/?#", host), url.size());
  return url.substr(0, end == host ? 0 : end);
}

OriginFault origin_fault(const std::string &url) {
  std::string origin(origin_of(url));
  if (origin.find('@') != origin.npos)  // libcurl tells an empty user name from none, but no text of it
    return OriginFault::User;
  UrlParts parts(origin), whole(url);
  if (parts.has_bad_port || parts.port == "0")
    return OriginFault::Port;
  const std::string &scheme = parts.scheme, &host = parts.host;
  if ((scheme != "https" && scheme != "http") || origin.find("://") != scheme.size() || host.empty() ||
      whole.host != host || whole.port != parts.port)
    return OriginFault::NoHost;
  bool is_ascii =
      std::none_of(host.begin(), host.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
  return is_ascii ? OriginFault::None : OriginFault::NotAscii;
}

}  // namespace outbox
