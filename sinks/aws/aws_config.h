/* aws_config.h: the parsed options of a sink of AWS. */
#pragma once

#include <memory>

#include "delivery/engine/sink.h"
#include "delivery/http/http_peer.h"
#include "delivery/identity/aws_credentials.h"
#include "message.h"
#include "target.h"

namespace outbox::aws_sink {

const std::vector<OptionSpec> &aws_options();
SecretMask secrets_of(const Options &mapping);
void check_user_mapping(const Options &mapping); /* throws BadInput */

class AwsConfig final : public SinkConfig {
public:
  AwsConfig(const Options &server, const Options *mapping); /* throws BadInput */

  void check_event(const ob_event &event) const override;
  void check_new_event(const ob_event &event) const override { maker.check_new(event); }
  size_t max_payload() const override { return 0; } /* the text of each payload is checked */
  Preview preview(const ob_event &event, int64_t now) const override;
  std::chrono::milliseconds longest_delay() const override { return peer.max_pause; }

  BadInput too_large(size_t size) const;

  const Target target;
  const MessageMaker maker;
  const HttpPeer peer;
  const std::shared_ptr<const aws::CredentialSource> credentials; /* null without the user mapping */
  const bool from_chain;                                          /* the credentials are renewed */
  size_t max_message_bytes = 262'144;                             /* of a message, and of all messages of a request */
};

std::vector<Advice> advise_aws(const AwsConfig &config, const Options &server, const Options *mapping);

}  // namespace outbox::aws_sink
