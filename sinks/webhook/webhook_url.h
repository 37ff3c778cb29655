/* webhook_url.h: the URL of a webhook sink, with variables in its path and query. */
#pragma once

#include <string>

#include "delivery/options/template.h"

namespace outbox {

class WebhookUrl {
public:
  static constexpr OptionForm form = OptionForm::Template;
  WebhookUrl() = default;
  /* Throws BadInput, which never shows the value, because it may contain a token. */
  static WebhookUrl parse(const std::string &option, const std::string &value);

  const std::string &text() const { return text_; } /* as given */
  bool is_https() const { return https_; }
  bool has_variables() const { return has_variables_; }
  /* "https://example.com:8443": scheme, host and port, which contain no variable. */
  const std::string &origin() const { return origin_; }
  /* The URL for an event. The value of a variable never ends its path segment or query parameter. Throws BadInput if
   * a variable has no value, or one that would change the path. */
  std::string render(const ob_event &event) const;

private:
  bool https_ = true, has_variables_ = false;
  std::string text_, origin_, host_;  // the host as libcurl parses it
  Template path_, query_;             // the query starts with its question mark
};

}  // namespace outbox
