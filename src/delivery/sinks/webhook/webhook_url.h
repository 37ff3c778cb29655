/* webhook_url.h: where a webhook sink's requests go: a URL, with variables in its path and query. */
#pragma once

#include <string>

#include "delivery/options/template.h"

namespace outbox {

class WebhookUrl {
public:
  WebhookUrl() = default;
  /* Throws BadInput, which never shows the value: it may hold a token. */
  static WebhookUrl parse(const std::string &option, const std::string &value);

  bool is_https() const { return https_; }
  bool has_variables() const { return has_variables_; }
  /* "https://example.com:8443": scheme, host and port, in which no variable stands. */
  const std::string &origin() const { return origin_; }
  /* That of an event. What a variable brings along never ends its path segment or its part of the query. Throws
   * BadInput when a variable has no value, or one that would change the path. */
  std::string render(const ob_event &event) const;

private:
  bool https_ = true, has_variables_ = false;
  std::string origin_, host_;  // the host as libcurl reads it
  Template path_, query_;      // the query with its question mark
};

}  // namespace outbox
