/*
 * webhook_forward.cpp: names are compared as CGI and its successors do (case-insensitive, `-` equals `_`), because
 * `X_Real_IP` becomes the same variable as `X-Real-IP` there.
 */
#include "webhook_forward.h"

#include <algorithm>

#include "delivery/base/text.h"
#include "delivery/options/options.h"
#include "delivery/http/http_headers.h"

namespace outbox {
namespace {

/* Headers that servers trust: credentials, certificates of clients, addresses of earlier hops, another method or
 * path; and those that say how the body is to be read. A name that ends with a hyphen is a prefix. */
bool is_never_taken(std::string_view name) {
  static constexpr std::string_view names[] = {"api-key",
                                               "cf-connecting-ip",
                                               "client-cert",
                                               "client-cert-",
                                               "client-ip",
                                               "content-encoding",
                                               "cookie",
                                               "cookie2",
                                               "fastly-client-ip",
                                               "forwarded",
                                               "http2-settings",
                                               "outbox-probe",
                                               "proxy",
                                               "proxy-",
                                               "remote-user",
                                               "set-cookie",
                                               "ssl-client-",
                                               "true-client-ip",
                                               "via",
                                               "x-access-token",
                                               "x-amzn-mtls-",
                                               "x-amzn-oidc-",
                                               "x-api-key",
                                               "x-arr-",
                                               "x-auth-",
                                               "x-client-cert",
                                               "x-client-cert-",
                                               "x-client-ip",
                                               "x-cluster-client-ip",
                                               "x-envoy-",
                                               "x-forwarded",
                                               "x-forwarded-",
                                               "x-goog-authenticated-",
                                               "x-goog-iap-",
                                               "x-host",
                                               "x-http-method",
                                               "x-http-method-override",
                                               "x-method-override",
                                               "x-ms-client-",
                                               "x-original-",
                                               "x-real-ip",
                                               "x-remote-user",
                                               "x-rewrite-url",
                                               "x-ssl-client-"};
  return is_reserved(name) || std::any_of(std::begin(names), std::end(names), [name](std::string_view never) {
           return same_variable(never.back() == '-' ? name.substr(0, never.size()) : name, never);
         });
}

}  // namespace

ForwardedHeaders ForwardedHeaders::parse(const std::string &option, const std::string &value) {
  constexpr const char *example = "Write them as 'traceparent, x-tenant, x-trace-*'; '*' is all that may be sent.";
  ForwardedHeaders parsed;
  if (trim(value).empty())
    return parsed;
  for (std::string_view part : split(value, ',')) {
    std::string name(part);
    bool is_prefix = name.ends_with('*');
    if (is_prefix)
      name.pop_back();
    if (name.find('*') != name.npos || (name.empty() ? !is_prefix : !is_header_name(name)))
      throw_bad_value(option, value, "Expected names of headers, separated by commas.", example);
    if (!is_prefix && is_never_taken(name))
      throw_bad_value(option, value, "Header \"" + name + "\" is never taken from an event.",
                      "If the endpoint needs it, option \"headers\" can make it of the event: {\"" + name +
                          "\": \"${header.NAME}\"}.");
    (is_prefix ? parsed.prefixes_ : parsed.names_).push_back(std::move(name));
  }
  return parsed;
}

bool ForwardedHeaders::takes(std::string_view name) const {
  auto is_name = [name](const std::string &wanted) { return same_name(name, wanted); };
  auto is_begin = [name](const std::string &wanted) { return same_name(name.substr(0, wanted.size()), wanted); };
  return (std::any_of(names_.begin(), names_.end(), is_name) ||
          std::any_of(prefixes_.begin(), prefixes_.end(), is_begin)) &&
         !is_never_taken(name);
}

}  // namespace outbox
