/* webhook_probe.cpp: connects as a delivery does, and asks for any answer, or on request sends a test event. */
#include "webhook_probe.h"

#include <string_view>

#include "delivery/engine/test_event.h"
#include "delivery/http/http_loop.h"
#include "delivery/http/http_probe.h"
#include "delivery/http/url_parts.h"
#include "webhook_protocol.h"

namespace outbox {
namespace {

/* The next step after a response that is not a success. */
const char *answer_hint(long status) {
  switch (status) {
  case 401:
  case 403:
    return "It does not accept the sink's credentials: look at bearer_token, username and password, "
           "headers and secret in PUBLIC's user mapping, and whether the endpoint knows them.";
  case 404:
  case 405:
  case 410:
    return "No handler accepts events at this url: correct option url, above all its path, or option method.";
  case 407:
    return "Correct proxy_username and proxy_password in PUBLIC's user mapping.";
  case 429:
    return "The endpoint limits requests: set option rate_limit, or ask its operator for a higher limit.";
  default:
    return status >= 300 && status < 400 ? "Set option url to where the endpoint is now: redirects are not followed."
           : status >= 400 && status < 500 ? "The endpoint may accept only other types of events: see its log."
           : status >= 500                 ? "See the endpoint's log."
                                           : "";
  }
}

/* They are no secret, and nobody but this library reads the private ones. */
void show_public_keys(const WebhookConfig &config, Probe &probe) {
  for (const standard_webhooks::SigningKey &key : config.auth.signing_keys)
    if (!key.public_key().empty())
      probe.passed("public key", key.public_key(), {}, 0.0);
}

/* Returns whether `token` is what a request needs. */
bool get_token(const WebhookConfig &config, Probe &probe, std::shared_ptr<const std::string> &token) {
  if (!config.oauth)
    return true;
  try {
    token = std::make_shared<std::string>(config.oauth->fetch([&probe] { return probe.over(); }).value.text);
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
void answers(const std::shared_ptr<const WebhookConfig> &config, const std::string &url, Probe &probe) {
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
    probe.failed("answer", classify_answer(answer).error, answer_hint(answer.status));
  else
    probe.passed("answer", "the endpoint answers requests (OPTIONS *: HTTP " + std::to_string(answer.status) + ")");
}

/* Sends the test event like any event, with one header more. */
void send(const std::shared_ptr<const WebhookConfig> &config, Probe &probe,
          std::shared_ptr<const std::string> token) {
  TestEvent test;
  try {
    config->check_event(test.event);
  } catch (const BadInput &bad) {
    probe.failed("request", "a test event cannot be sent: " + std::string(bad.what()),
                 "The url or a header is made of values that a test event does not have.");
    return;
  }
  const WebhookProtocol protocol(config);
  const HttpContent content{{protocol.render(test.event)}, std::move(token)};
  HttpCall call = protocol.call(content);
  call.headers.emplace_back("Outbox-Probe", "true");
  HttpTransfer transfer(config, probe.sink(), protocol.url(), config->method);
  prepare(transfer, content, call);
  const CURLcode code = HttpProbe::run(transfer, probe);
  auto failure = transfer.no_answer(code);
  const HttpVerdict verdict = failure ? std::move(*failure) : protocol.classify_response(transfer, code, content);
  const long status = transfer.status();
  if (verdict.outcome == Outcome::Sent)
    probe.passed("request", "the endpoint took a test event of type " + std::string(TestEvent::type) + ": HTTP " +
                                std::to_string(status));
  else
    probe.failed("request", verdict.gone ? "HTTP 410" : protocol.without_secrets(verdict.error, content),
                 answer_hint(status));
}

}  // namespace

void probe_webhook(const std::shared_ptr<const WebhookConfig> &config, Probe &probe) {
  init_libcurl();
  const std::string url = WebhookProtocol(config).url();
  std::shared_ptr<const std::string> token;
  show_public_keys(*config, probe);
  /* The connection is closed before a request is sent: some endpoints serve one at a time. */
  if (!HttpProbe(config, url, probe).connects() || !get_token(*config, probe, token))
    return;
  if (probe.sends())
    send(config, probe, std::move(token));
  else
    answers(config, url, probe);
}

}  // namespace outbox
