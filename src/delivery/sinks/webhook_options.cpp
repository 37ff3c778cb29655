#include "delivery/sinks/webhook_options.h"

#include <algorithm>

#include "delivery/formats/standard_webhooks.h"
#include "delivery/network_guard.h"
#include "delivery/pem.h"
#include "delivery/sinks/webhook_headers.h"
#include "delivery/sinks/webhook_url.h"

namespace outbox {

using std::chrono::milliseconds;

/* ---- values ---- */

milliseconds parse_timeout(const std::string &name, const std::string &value) {
  return parse_duration(name, value, milliseconds(100), milliseconds(300'000));
}

size_t parse_concurrency(const std::string &name, const std::string &value) {
  return static_cast<size_t>(parse_int(name, value, 1, 1000));
}

/* ---- checks ---- */

/* What is parsed is checked. */
template <auto parse> static void check(const std::string &name, const std::string &value) {
  (void)parse(name, value);
}

static void check_format(const std::string &name, const std::string &value) {
  if (value != "standard-webhooks")
    throw BadInput(OB_BAD_VALUE, name, "invalid value for option \"" + name + "\": \"" + value + "\"",
                   "Expected \"standard-webhooks\".");
}

static void check_token(const std::string &name, const std::string &value) {
  if (value.empty() || !std::all_of(value.begin(), value.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; }))
    refuse_value(name, "A bearer token consists of visible ASCII characters, without spaces.");
}

/* ---- the table ---- */

const std::vector<OptionSpec> &webhook_options() {
  static const auto &specs = *new std::vector<OptionSpec>{
      // name, in_server, in_mapping, secret, superuser
      {"url", true, true, false, false, check<parse_url>,
       "Where events are posted to. In the user mapping when it carries a token. https, unless allow_http is true."},
      {"format", true, false, false, false, check_format, "Body and headers: 'standard-webhooks', the default."},
      {"timeout", true, false, false, false, check<parse_timeout>,
       "How long one request may take, answer included: 100ms to 5min. Default 15s."},
      {"concurrency", true, false, false, false, check<parse_concurrency>,
       "Requests at the same time, of different keys: 1 to 1000. Default 32."},
      {"allow_http", true, false, false, false, check<parse_bool>,
       "Whether url may be http, unencrypted. Default false."},
      {"allow_networks", true, false, false, true, check<parse_networks>,
       "Networks that are not global and yet may be posted to, in CIDR notation: '10.0.0.0/8, fd00::/8'. Superuser "
       "only."},
      {"headers", true, false, false, false, check<parse_headers>,
       "Fixed request headers, a flat JSON object: '{\"X-Tenant\": \"42\"}'."},
      {"ca_pem", true, false, false, false, check_certificates_pem,
       "Certificates in PEM that the endpoint's must come from, instead of the system's authorities."},
      {"secret", false, true, true, false, check<standard_webhooks::decode_secret>,
       "Signs every request: 'whsec_' and the base64 of 24 to 64 random bytes. Without it requests are not signed."},
      {"bearer_token", false, true, true, false, check_token, "Sent as 'Authorization: Bearer ...'."},
  };
  return specs;
}

}  // namespace outbox
