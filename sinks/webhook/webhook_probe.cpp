/* webhook_probe.cpp: connects as a delivery does, and asks for any answer, unless a test event asks for one. */
#include "webhook_probe.h"

#include <string_view>

#include "delivery/http/http_loop.h"
#include "delivery/http/http_probe.h"
#include "delivery/http/url_parts.h"
#include "webhook_protocol.h"

namespace outbox {
namespace {

/* They are no secret, and nobody but this library reads the private ones. */
void show_public_keys(const WebhookConfig &config, Probe &probe) {
  for (const standard_webhooks::SigningKey &key : config.auth.signing_keys)
    if (!key.public_key().empty())
      probe.passed("public key", key.public_key(), {}, 0.0);
}

/* Returns whether there is one, or none is needed. */
bool get_token(const WebhookConfig &config, Probe &probe) {
  if (!config.oauth)
    return true;
  try {
    (void)config.oauth->fetch([&probe] { return probe.over(); });
  } catch (const NotGranted &failure) {
    probe.failed("token", failure.what(),
                 "The database server must reach the token endpoint, and prove itself there.");
    return false;
  }
  probe.passed("token", "the token endpoint grants one to client \"" + config.oauth->client_id + "\"");
  return true;
}

/* "OPTIONS *" is HTTP's ping: it names no resource, so no handler of events sees it. Any answer will do, unless it is
 * about the connection: connecting alone does not show an endpoint that hangs, or a port that wants TLS. */
void answers(const std::shared_ptr<const WebhookConfig> &config, Probe &probe) {
  const std::string &url = config->url();
  HttpTransfer transfer(config, probe.sink(), url, "OPTIONS");
  transfer.prepare({}, {}, {});
  const bool by_proxy = config->proxy.is_used() && same_name(std::string_view(url).substr(0, 5), "http:");
  const std::string target = by_proxy ? std::string(origin_of(url)) : "*";
  curl_easy_setopt(transfer.handle(), CURLOPT_REQUEST_TARGET, target.c_str());
  const CURLcode code = HttpProbe::run(transfer, probe);
  const bool cut = code != CURLE_OK || transfer.body_is_cut();
  const std::string body = config->secrets.masked(transfer.body(), cut); /* first: a cut secret is not found */
  const HttpAnswer answer{.status = transfer.status(), .body = body, .body_is_cut = transfer.body_is_cut()};
  if (auto failure = transfer.no_answer(code))
    probe.failed(
        "answer", failure->error,
        "The probe sent \"OPTIONS *\", which an endpoint may ignore: with send => true it sends a test event.");
  else if (is_about_the_connection(answer))
    probe.failed("answer", classify_answer(answer).error, hint_of(answer.status));
  else
    probe.passed("answer", "the endpoint answers requests (OPTIONS *: HTTP " + std::to_string(answer.status) + ")");
}

}  // namespace

void probe_webhook(const std::shared_ptr<const WebhookConfig> &config, Probe &probe) {
  init_libcurl();
  show_public_keys(*config, probe);
  /* The connection is closed before a request is sent: some endpoints serve one at a time. */
  if (!HttpProbe(config, config->url(), probe).connects() || !get_token(*config, probe))
    return;
  probe.can_deliver();
  if (!probe.sends())
    answers(config, probe);
}

}  // namespace outbox
