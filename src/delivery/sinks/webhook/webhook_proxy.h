/* webhook_proxy.h: the proxy through which a webhook sink's requests go. */
#pragma once

#include <optional>
#include <string>

#include "delivery/http/network_guard.h"
#include "delivery/options/options.h"

namespace outbox {

struct WebhookProxy {
  std::string url;  // empty: none
  std::string username, password;
  /* The proxy resolves the names of URLs, so the guard never sees their addresses; but one that is written into a URL
   * it can judge. */
  std::optional<Refusal> refused_target;

  bool is_used() const { return !url.empty(); }
  bool is_https() const { return url.size() >= 6 && (url[4] == 's' || url[4] == 'S'); }
};

/* Values; each throws BadInput, which never shows the value: somebody may have put a password there. */
void check_proxy(const std::string &option, const std::string &value);
void check_proxy_username(const std::string &option, const std::string &value);
void check_proxy_password(const std::string &option, const std::string &value);
/* What a user mapping says of the proxy. Throws BadInput. */
void check_proxy_mapping(const Options &mapping);

/* `url` is where requests go. Throws BadInput. */
WebhookProxy parse_proxy(const Options &server, const Options *mapping, const std::string &url,
                         const NetworkGuard &guard);

}  // namespace outbox
