/*
 * http_proxy.cpp: with a proxy the guard sees the proxy's address and not the endpoint's, so an IP address in
 * the URL is checked when the options are parsed.
 */
#include "delivery/http/http_proxy.h"

#include <algorithm>

#include "delivery/http/url_parts.h"

namespace outbox {

static const char *const example = "Example: 'http://proxy.example.com:3128'.";
static const char *const in_mapping =
    "Give them to the user mapping: CREATE USER MAPPING FOR PUBLIC SERVER ... OPTIONS (proxy_user '...', "
    "proxy_password '...').";

/* Checks of values. Their errors never show the value, because it may contain a password. */
static void check_proxy(const std::string &option, const std::string &value) {
  switch (origin_fault(value)) {
  case OriginFault::None:
    break;
  case OriginFault::Port:
  case OriginFault::NoHost:
    refuse_value(option, "Expected the URL of an http or https proxy.", example);
  case OriginFault::User:
    refuse_value(option, "Every role can read the options of a server, and this has a user name or a password.",
                 in_mapping);
  case OriginFault::NotAscii:
    refuse_value(option, host_is_not_ascii, write_punycode);
  }
  UrlParts url(value);
  if ((!url.path.empty() && url.path != "/") || !url.query.empty() || !url.fragment.empty())
    refuse_value(option, "A proxy has no path.", example);
  if (url.port.empty())
    refuse_value(option, "The proxy's port is missing.", example);
}

static bool is_plain(const std::string &value) {
  return std::none_of(value.begin(), value.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

static void check_proxy_username(const std::string &option, const std::string &value) {
  if (value.empty() || !is_plain(value) || value.find(':') != value.npos)
    refuse_value(option, "A proxy's user name is not empty, and has neither colons nor control characters.",
                 "Give the name without the password, which is option proxy_password.");
}

static void check_proxy_password(const std::string &option, const std::string &value) {
  if (value.empty() || !is_plain(value))
    refuse_value(option, "A proxy's password is not empty, and has no control characters.",
                 "Leave it out if the proxy requires none.");
}

void HttpProxy::check_login() const {
  if (!password.empty() && username.empty())
    throw BadInput(OB_MISSING_OPTION, PROXY_USER, "option \"proxy_user\" is missing", "There is a proxy_password.",
                   "Add option \"proxy_user\".");
}

std::vector<Row<HttpProxy>> HttpProxy::rows() {
  return {
      row("proxy", &HttpProxy::url, Text{check_proxy, "`http://proxy.example.com:3128`, or https"},
          "The [proxy](docs/webhooks.md#through-a-proxy) of all requests.")
          .by_superuser(),
      row(PROXY_USER, &HttpProxy::username, Text{check_proxy_username}, "For the proxy, when it asks for one.")
          .as_secret(),
      row("proxy_password", &HttpProxy::password, Text{check_proxy_password}, "For the proxy, with `proxy_user`.")
          .as_secret(),
  };
}

void HttpProxy::complete(const std::string &target, const NetworkGuard &guard) {
  if (is_used())
    if (auto address = literal_address(UrlParts(target).host))
      refused_target = guard.check(*address);
}

}  // namespace outbox
