/* aws_config.h: the parsed options of a sink of AWS. */
#pragma once

#include <memory>

#include "delivery/engine/sink.h"
#include "message.h"

namespace outbox::aws_sink {

class AwsConfig final : public SinkConfig, public AwsOptions {
public:
  AwsConfig(const Options &server, const Options *mapping); /* throws BadInput */

  void check_event(const ob_event &event) const override;
  void check_new_event(const ob_event &event) const override { maker.check_new(event); }
  size_t max_payload() const override { return 0; } /* the text of each payload is checked */
  Preview preview(const ob_event &event, int64_t now) const override;
  std::chrono::milliseconds longest_delay() const override { return max_pause; }

  void check_size(size_t size) const; /* throws BadInput */

  const MessageMaker maker;
  std::shared_ptr<const aws::CredentialSource> credentials; /* null without the user mapping */

private:
  const AwsOptions &read(const Options &server, const Options *mapping);
};

std::vector<Advice> advise_aws(const AwsConfig &config, const Options &server);

}  // namespace outbox::aws_sink
