/*
 * url_parts.cpp: the host is what libcurl's own parser says, because libcurl connects to it: a second parser that
 * disagrees about 'https:///host' or '@' would let a URL past the checks. Lack of memory must not look like a URL
 * without a host: all events of its sink would become dead letters.
 */
#include "delivery/http/url_parts.h"

#include <algorithm>
#include <new>

namespace outbox {

UrlParts::UrlParts(const std::string &url) : url_(curl_url(), curl_url_cleanup) {
  if (!url_)
    throw std::bad_alloc();
  code_ = curl_url_set(url_.get(), CURLUPART_URL, url.c_str(), 0);
  if (code_ == CURLUE_OUT_OF_MEMORY)
    throw std::bad_alloc();
}

std::string UrlParts::get(CURLUPart part, unsigned flags) const {
  if (code_ != CURLUE_OK)
    return {};
  char *text = nullptr;
  CURLUcode code = curl_url_get(url_.get(), part, &text, flags);
  if (code == CURLUE_OUT_OF_MEMORY)
    throw std::bad_alloc();
  if (code != CURLUE_OK)
    return {};
  const std::unique_ptr<char, decltype(&curl_free)> owner(text, curl_free);
  return text;
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
  if (parts.code() == CURLUE_BAD_PORT_NUMBER || parts.get(CURLUPART_PORT) == "0")
    return OriginFault::Port;
  std::string scheme = parts.get(CURLUPART_SCHEME), host = parts.host();
  if ((scheme != "https" && scheme != "http") || origin.find("://") != scheme.size() || host.empty() ||
      whole.host() != host || whole.get(CURLUPART_PORT) != parts.get(CURLUPART_PORT))
    return OriginFault::NoHost;
  bool is_ascii =
      std::none_of(host.begin(), host.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
  return is_ascii ? OriginFault::None : OriginFault::NotAscii;
}

}  // namespace outbox
