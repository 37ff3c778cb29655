/* line_protocol.h: a sender (http_sender.h) whose requests are lines, and a harness that drives it. */
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "delivery/http/http_sender.h"
#include "webhook_fixture.h"

namespace outbox {

/* A request has its messages in lines: "KEY TICKET". The answer has one letter for each: s(ent), r(etry), d(own),
 * t(oo many requests), u(navailable), or "alone"; or it is one for all of them: "refused", "too large" or "ill". */
struct LineProtocol : HttpPeer, HttpProtocol {
  std::string target;
  size_t most = 3, weight = SIZE_MAX;
  int64_t pause_ms = -1; /* with t */
  bool own_urls = false, needs_grant = false, runs = false;
  std::chrono::milliseconds collects{0};
  mutable Shared<HttpGrant> granted;
  mutable std::atomic<int> refusals{0}, grants_asked{0};

  explicit LineProtocol(std::string url) : target(std::move(url)) {
    guard = NetworkGuard(parse_networks("allow_networks", "127.0.0.0/8"));
    concurrency = 2;
  }
  const std::string &url() const override { return target; }
  size_t most_messages() const override { return most; }
  size_t most_weight() const override { return weight; }
  bool carries_runs() const override { return runs; }
  std::chrono::milliseconds collects_for() const override { return collects; }
  HttpMessage render(const ob_event &event) const override {
    std::string line = std::to_string(event.key_hash) + " " + std::to_string(event.ticket) + "\n";
    const size_t size = line.size();
    return {.url = own_urls ? target + "/of/" + std::to_string(event.key_hash) : "",
            .headers = {{"Content-Type", "text/plain"}},
            .parts = {std::move(line)},
            .weight = size};
  }
  std::optional<HttpGrant> grant() const override {
    ++grants_asked;
    return needs_grant ? std::optional(granted.get()) : std::nullopt;
  }
  void refused(const std::shared_ptr<const std::string> &grant) const override {
    EXPECT_EQ(grant, granted.get().secret);
    ++refusals;
  }
  HttpCall call(const HttpContent &content) const override {
    HttpCall call{.headers = {{"X-Kind", "lines"}}};
    if (content.grant)
      call.headers.emplace_back("X-Grant", *content.grant);
    for (const HttpMessage &message : content.messages)
      call.body += message.parts.at(0);
    return call;
  }
  HttpVerdict classify_response(const HttpTransfer &answer, CURLcode, const HttpContent &content) const override {
    if (answer.status() == 401 || answer.status() == 410)
      return classify_answer({.status = answer.status()});
    if (answer.body() == "refused" || answer.body() == "too large")
      return {{Outcome::Retry, "refused", answer.body() == "refused" ? OB_REASON_HTTP_4XX : OB_REASON_TOO_LARGE}};
    if (answer.body() == "ill")
      return {{Outcome::RetryBlameSink, "ill", OB_REASON_HTTP_5XX}};
    HttpVerdict verdict;
    verdict.blames_one = answer.body() == "alone";
    if (verdict.blames_one)
      return verdict;
    for (size_t i = 0; i < content.messages.size(); i++)
      switch (answer.body().at(i)) {
      case 's':
        verdict.each.push_back({Outcome::Sent});
        break;
      case 'r':
        verdict.each.push_back({Outcome::Retry, "busy", OB_REASON_HTTP_5XX, 700});
        break;
      case 't':
        verdict.each.push_back({Outcome::RetryBlameSink, "too many requests", OB_REASON_RATE_LIMITED});
        verdict.slow_down = verdict.too_many = true;
        verdict.pause_ms = pause_ms;
        break;
      case 'u':
        verdict.each.push_back({Outcome::RetryBlameSink, "unavailable", OB_REASON_HTTP_5XX});
        verdict.slow_down = true;
        break;
      default:
        verdict.each.push_back({Outcome::SinkDown, "closed today"});
      }
    return verdict;
  }
  std::vector<std::string> acknowledgements(const HttpTransfer &, const HttpContent &content) const override {
    std::vector<std::string> texts;
    for (const HttpMessage &message : content.messages)
      texts.push_back("line of " + std::to_string(message.ticket));
    return texts;
  }
  std::string without_secrets(std::string_view text, const HttpContent &, bool cut) const override {
    return secrets.masked(text, cut);
  }
};

using Lines = std::vector<std::string>;

inline Lines lines_of(const HttpRequest &request) {
  Lines lines;
  for (size_t at = 0, end; (end = request.body.find('\n', at)) != std::string::npos; at = end + 1)
    lines.push_back(request.body.substr(at, end - at));
  return lines;
}

class Harness {
public:
  explicit Harness(std::shared_ptr<LineProtocol> protocol)
      : sink(std::make_unique<HttpSender>("lines", protocol, protocol, reporter)) {}
  explicit Harness(const FaultServer &peer) : Harness(std::make_shared<LineProtocol>(peer.url())) {}

  void submit(uint64_t ticket, uint64_t key) {
    TestEvent event(ticket, key);
    ASSERT_TRUE(sink->submit(event.get()));
  }
  /* Sends this many events, each of a key of its own, and waits for their ends. */
  std::map<uint64_t, Completion> send(uint64_t n) {
    for (uint64_t key = 1; key <= n; key++)
      submit(key, key);
    sink->flush();
    return wait(n);
  }
  std::map<uint64_t, Completion> wait(size_t n) {
    std::map<uint64_t, Completion> by_ticket;
    for (const Completion &each : wait_for(*sink, *reporter, n))
      EXPECT_TRUE(by_ticket.emplace(each.ticket, each).second) << "two ends of " << each.ticket;
    return by_ticket;
  }

  std::shared_ptr<RecordingReporter> reporter = std::make_shared<RecordingReporter>();
  std::unique_ptr<HttpSender> sink;
};

inline std::string all_sent(const HttpRequest &request) {
  return std::string(lines_of(request).size(), 's');
}

}  // namespace outbox
