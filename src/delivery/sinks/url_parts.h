/* url_parts.h: a URL as libcurl understands it. */
#pragma once

#include <memory>
#include <string>

#include <curl/curl.h>

namespace outbox {

class UrlParts {
public:
  explicit UrlParts(const std::string &url);
  CURLUcode code() const { return code_; }
  /* Empty when there is none, or the whole is no URL. */
  std::string get(CURLUPart part, unsigned flags = 0) const;
  /* The host that is asked for or connected to, in ASCII where that can be. */
  std::string host() const;

private:
  std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> url_;
  CURLUcode code_;
};

}  // namespace outbox
