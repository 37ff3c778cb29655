/*
 * url_parts.cpp: the host is what libcurl's own parser says, because libcurl connects to it: a second parser that
 * disagrees about 'https:///host' or '@' would let a URL past the checks. Lack of memory must not look like a URL
 * without a host: all events of its sink would become dead letters.
 */
#include "delivery/http/url_parts.h"

#include <curl/curl.h>

#include <memory>
#include <new>

namespace outbox {

using CurlUrl = std::unique_ptr<CURLU, decltype(&curl_url_cleanup)>;

static std::string part_of(const CurlUrl &url, CURLUPart part) {
  char *text = nullptr;
  CURLUcode code = curl_url_get(url.get(), part, &text, 0);
  if (code == CURLUE_OUT_OF_MEMORY)
    throw std::bad_alloc();
  if (code != CURLUE_OK)
    return {};
  const std::unique_ptr<char, decltype(&curl_free)> owner(text, curl_free);
  return text;
}

UrlParts::UrlParts(const std::string &text) {
  const CurlUrl url(curl_url(), curl_url_cleanup);
  if (!url)
    throw std::bad_alloc();
  CURLUcode code = curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0);
  if (code == CURLUE_OUT_OF_MEMORY)
    throw std::bad_alloc();
  has_bad_port = code == CURLUE_BAD_PORT_NUMBER;
  is_valid = code == CURLUE_OK;
  if (!is_valid)
    return;
  scheme = part_of(url, CURLUPART_SCHEME);
  user = part_of(url, CURLUPART_USER);
  host = part_of(url, CURLUPART_HOST);
  port = part_of(url, CURLUPART_PORT);
  path = part_of(url, CURLUPART_PATH);
  query = part_of(url, CURLUPART_QUERY);
  fragment = part_of(url, CURLUPART_FRAGMENT);
}

}  // namespace outbox
