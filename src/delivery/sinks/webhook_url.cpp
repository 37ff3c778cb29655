#include "delivery/sinks/webhook_url.h"

#include <memory>
#include <new>

#include <curl/curl.h>

#include "delivery/options.h"

namespace outbox {

using Url = std::unique_ptr<CURLU, decltype(&curl_url_cleanup)>;

static std::string url_part(const Url &url, CURLUPart part) {
  char *text = nullptr;
  if (curl_url_get(url.get(), part, &text, 0) != CURLUE_OK)
    return {};
  std::string copy(text);
  curl_free(text);
  return copy;
}

std::string parse_url(const std::string &option, const std::string &value) {
  Url url(curl_url(), curl_url_cleanup);
  if (!url)
    throw std::bad_alloc();
  std::string scheme;
  if (curl_url_set(url.get(), CURLUPART_URL, value.c_str(), 0) == CURLUE_OK)
    scheme = url_part(url, CURLUPART_SCHEME);
  if ((scheme != "https" && scheme != "http") || url_part(url, CURLUPART_HOST).empty())
    refuse_value(option, "Expected an https URL such as https://example.com/hooks.");
  if (!url_part(url, CURLUPART_USER).empty() || !url_part(url, CURLUPART_PASSWORD).empty())
    refuse_value(
        option, "A URL must not carry a user name or a password.",
        "Put a token into the user mapping: CREATE USER MAPPING FOR PUBLIC SERVER ... OPTIONS (bearer_token '...').");
  if (!url_part(url, CURLUPART_FRAGMENT).empty())
    refuse_value(option, "A URL's fragment (after #) is never sent.");
  if (value.find("${") != value.npos)
    refuse_value(option, "Variables such as ${event_type} are not filled in here.",
                 "Make a sink for each URL, with events and aggregates, or write a dollar sign as %24.");
  return scheme;
}

}  // namespace outbox
