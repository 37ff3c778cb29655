/* protocol.h: requests of AWS and their answers, for the HTTP sender. */
#pragma once

#include <memory>

#include "delivery/http/http_sender.h"
#include "signer.h"

namespace outbox::aws_sink {

class Protocol final : public HttpProtocol {
public:
  Protocol(std::shared_ptr<const AwsConfig> config, std::shared_ptr<Signer> signer)
      : config_(std::move(config)), signer_(std::move(signer)) {}

  const std::string &url() const override { return config_->target.url; }
  size_t most_messages() const override { return most_entries; }
  size_t most_weight() const override { return config_->max_message_bytes; }
  HttpMessage render(const ob_event &event) const override;
  HttpCall call(const std::vector<HttpMessage> &messages) const override;
  HttpJudgement judge(const HttpTransfer &answer, CURLcode code,
                      const std::vector<HttpMessage> &messages) const override;

private:
  const std::shared_ptr<const AwsConfig> config_;
  const std::shared_ptr<Signer> signer_;
};

}  // namespace outbox::aws_sink
