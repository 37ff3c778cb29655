/* aws_options.h: the options of servers and user mappings. */
#pragma once

#include <optional>
#include <string>

#include "delivery/formats/format_options.h"
#include "delivery/http/http_peer.h"
#include "delivery/identity/aws_credentials.h"
#include "delivery/options/message_size.h"
#include "delivery/options/template.h"
#include "target.h"

namespace outbox::aws_sink {

inline constexpr OptionName SUBJECT{"subject"}, DETAIL_TYPE{"detail_type"};

/* Immutable once it is parsed. */
struct AwsOptions : HttpPeer, FormatOptions {
  TargetOptions target_options;
  Target target; /* made of these */
  std::optional<Template> subject;
  Template detail_type = Template::parse(DETAIL_TYPE, "${event_type}");
  std::optional<Template> source_given; /* of EventBridge, and of CloudEvents */
  size_t max_message = 262'144;         /* of a message, and of all messages of a request */
  aws::CredentialOptions credential_options;

  static const OptionTable<AwsOptions> &table();
  /* Both throw BadInput. */
  void read_server(const Options &server);
  void read_mapping(const Options &mapping);
};

}  // namespace outbox::aws_sink
