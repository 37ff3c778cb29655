/*
 * protocol.h: requests of AWS and their answers, for the HTTP sender. EventBridge acknowledges events for a bus that
 * does not exist, and drops them. So the sink asks whether its bus is there before it sends the first events, and
 * again when the last answer is a minute old: the events of such a request are returned, and sent by the next one.
 */
#pragma once

#include <chrono>

#include <memory>

#include "delivery/http/http_sender.h"
#include "classify_response.h"
#include "signer.h"

namespace outbox::aws_sink {

class Protocol final : public HttpProtocol {
public:
  Protocol(std::shared_ptr<const AwsConfig> config, std::shared_ptr<Signer> signer,
           std::shared_ptr<Reporter> reporter)
      : config_(std::move(config)), signer_(std::move(signer)), reporter_(std::move(reporter)) {}

  const std::string &url() const override { return config_->target.url; }
  size_t most_messages() const override { return most_entries; }
  size_t most_weight() const override { return config_->max_message; }
  HttpMessage render(const ob_event &event) const override;
  std::optional<HttpGrant> grant() const override { return signer_->grant(); }
  HttpCall call(const HttpContent &content) const override;
  HttpVerdict classify_response(const HttpTransfer &answer, CURLcode code, const HttpContent &content) const override;
  std::vector<std::string> acknowledgements(const HttpTransfer &answer, const HttpContent &content) const override {
    return names_given(config_->target, content.messages.size(), std::string(answer.body()));
  }
  std::string without_secrets(std::string_view text, const HttpContent & /*content*/, bool cut) const override {
    return signer_->without_secrets(text, cut);
  }

private:
  using Clock = std::chrono::steady_clock;
  bool may_send(const HttpTransfer &answer) const;

  const std::shared_ptr<const AwsConfig> config_;
  const std::shared_ptr<Signer> signer_;
  const std::shared_ptr<Reporter> reporter_;
  /* Of the HTTP loop's thread. */
  mutable Clock::time_point ask_at_{}; /* for the bus */
  mutable bool may_ask_ = true;
};

}  // namespace outbox::aws_sink
