/* webhook.cpp: webhooks to a server in this process: plain, over TLS, refused at first, and closed in flight. */
#include "test/unit/authority.h"
#include "test/unit/fault_server.h"

#include "scenario.h"

namespace calls {
namespace {

constexpr int hook_keys = 3, hook_events = 2;

/* Names are resolved on a thread of libcurl. */
OptionList webhook_to(const std::string &url) {
  return {
      {"url", url.c_str()}, {"allow_http", "true"}, {"allow_networks", "127.0.0.0/8, ::1/128"}, {"timeout", "3s"}};
}

const Scenario webhook_plain("webhook", [] {
  Received received;
  FaultServer peer([&](const HttpRequest &request, FaultServer::Peer &client) {
    received.add(request.body);
    return client.answer(200);
  });
  {
    const std::string url = "http://localhost:" + std::to_string(peer.port()) + "/";
    Worker worker;
    worker.open("webhook", webhook_to(url), {{"secret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}});
    worker.deliver(hook_keys, hook_events);
    worker.close(5000);
  }
  received.check(hook_keys, hook_events);
});

const Scenario webhook_failing("webhook-failing", [] {
  Received received;
  std::atomic<int> n{0};
  FaultServer peer([&](const HttpRequest &request, FaultServer::Peer &client) {
    if (int i = n++; i == 1 || i == 3) /* one is refused, one asks for a pause */
      return client.answer(i == 1 ? 500 : 503, i == 1 ? "" : "Retry-After: 1\r\n", "not now");
    received.add(request.body);
    return client.answer(200);
  });
  {
    const std::string url = peer.url();
    Worker worker;
    worker.open("webhook", webhook_to(url));
    worker.deliver(hook_keys, hook_events);
    worker.close(5000);
  }
  received.check(hook_keys, hook_events);
});

const Scenario webhook_tls("webhook-tls", [] {
  Authority authority("127.0.0.1");
  Received received;
  FaultServer peer(
      [&](const HttpRequest &request, FaultServer::Peer &client) {
        received.add(request.body);
        return client.answer(204);
      },
      authority.context);
  {
    const std::string url = peer.url(), ca = authority.pem(), certificate = authority.pem(),
                      key = authority.key_pem();
    OptionList options = {
        {"url", url.c_str()}, {"allow_networks", "127.0.0.0/8"}, {"ssl_ca_pem", ca.c_str()}, {"timeout", "3s"}};
    Worker worker;
    worker.open("webhook", options, {{"ssl_certificate_pem", certificate.c_str()}, {"ssl_key_pem", key.c_str()}});
    worker.deliver(hook_keys, hook_events);
    worker.close(5000);
  }
  received.check(hook_keys, hook_events);
});

/* Some requests hang, others wait behind them: all are given up after the grace period. */
const Scenario webhook_closed("webhook-closed", [] {
  FaultServer peer([](const HttpRequest &, FaultServer::Peer &client) { return client.hang(); });
  const std::string url = peer.url();
  Worker worker;
  worker.open("webhook", webhook_to(url));
  worker.submit_some(hook_keys, hook_events);
  worker.wait(50);
  worker.collect();
  worker.close(100);
});

}  // namespace
}  // namespace calls
