/* http_proxy.h: the proxy through which a sink sends its HTTP requests. */
#pragma once

#include <optional>
#include <string>

#include "delivery/http/network_guard.h"
#include "delivery/options/option_table.h"

namespace outbox {

inline constexpr OptionName PROXY_USER{"proxy_user"};

struct HttpProxy {
  std::string url;  // empty: no proxy
  std::string username, password;
  /* Set if the URL contains an IP address that the guard refuses. Names are resolved by the proxy, so the guard
   * cannot check them. */
  std::optional<Refusal> refused_target;

  static std::vector<Row<HttpProxy>> rows();
  /* After the rows of the server were read: `target` is the URL of the requests. */
  void complete(const std::string &target, const NetworkGuard &guard);
  /* After those of the user mapping. Throws BadInput. */
  void check_login() const;

  bool is_used() const { return !url.empty(); }
  bool is_https() const { return url.size() >= 6 && (url[4] == 's' || url[4] == 'S'); }
};

}  // namespace outbox
