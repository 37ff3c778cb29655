/* http_proxy.h: the proxy through which a sink sends its HTTP requests. */
#pragma once

#include <optional>
#include <string>

#include "delivery/http/network_guard.h"
#include "delivery/options/options.h"

namespace outbox {

inline constexpr OptionName PROXY{"proxy"}, PROXY_USERNAME{"proxy_username"}, PROXY_PASSWORD{"proxy_password"};

struct HttpProxy {
  std::string url;  // empty: no proxy
  std::string username, password;
  /* Set if the URL contains an IP address that the guard refuses. Names are resolved by the proxy, so the guard
   * cannot check them. */
  std::optional<Refusal> refused_target;

  bool is_used() const { return !url.empty(); }
  bool is_https() const { return url.size() >= 6 && (url[4] == 's' || url[4] == 'S'); }
};

/* Checks of values. The BadInput that they throw never shows the value, because it may contain a password. */
void check_proxy(const std::string &option, const std::string &value);
void check_proxy_username(const std::string &option, const std::string &value);
void check_proxy_password(const std::string &option, const std::string &value);
/* Checks the proxy's options in a user mapping. Throws BadInput. */
void check_proxy_mapping(const Options &mapping);

/* `url` is the target of the requests. Throws BadInput. */
HttpProxy parse_proxy(const Options &server, const Options *mapping, const std::string &url,
                      const NetworkGuard &guard);

}  // namespace outbox
