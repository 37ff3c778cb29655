#include "delivery/sinks/url_parts.h"

#include <new>

namespace outbox {

UrlParts::UrlParts(const std::string &url) : url_(curl_url(), curl_url_cleanup) {
  if (!url_)
    throw std::bad_alloc();
  code_ = curl_url_set(url_.get(), CURLUPART_URL, url.c_str(), 0);
}

std::string UrlParts::get(CURLUPart part, unsigned flags) const {
  char *text = nullptr;
  if (code_ != CURLUE_OK || curl_url_get(url_.get(), part, &text, flags) != CURLUE_OK)
    return {};
  std::string copy(text);
  curl_free(text);
  return copy;
}

std::string UrlParts::host() const {
  std::string ascii = get(CURLUPART_HOST, CURLU_PUNYCODE);
  return ascii.empty() ? get(CURLUPART_HOST) : ascii;
}

}  // namespace outbox
