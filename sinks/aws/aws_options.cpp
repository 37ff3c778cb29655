/* aws_options.cpp: the table of options, and what is checked of them together. */
#include "aws_options.h"

#include "message.h"
#include "message_format.h"

namespace outbox::aws_sink {

const OptionTable<AwsOptions> &AwsOptions::table() {
  using Of = AwsOptions;
  static const auto &table = *new OptionTable<Of>(
      within(&Of::target_options, TargetOptions::rows()),
      row(SUBJECT, &Of::subject, As{parse_subject, "at most 99 characters of ASCII"},
          "Of a message of SNS: a template."),
      row(DETAIL_TYPE, &Of::detail_type, As{parse_detail_type, "at most 128 characters"},
          "Of an event of EventBridge: a template."),
      row(MAX_MESSAGE, &Of::max_message, Size{1024, 1'048'576},
          "Largest message with its attributes, and largest sum of the messages of a request."),
      FormatOptions::rows(),
      row(SOURCE, &Of::source_given, As{parse_source, "at most 256 characters"},
          "Source of an event of EventBridge, and attribute of CloudEvents: a template.")
          .otherwise("`outbox.${aggregate_type}`; of CloudEvents `/outbox/${database}/${aggregate_type}`"),
      HttpPeer::rows(), within(&Of::credential_options, aws::CredentialOptions::rows()));
  return table;
}

/* The options without those whose meaning for EventBridge is another than for a format. */
static Options of_format(const Options &server, Service service, Format format) {
  Options left = server;
  if (service == Service::EventBridge && format != Format::Structured)
    left.erase(SOURCE);
  return left;
}

void AwsOptions::read_server(const Options &server) {
  auto refuse_unless = [&](Service wanted, OptionName name, const char *only) {
    if (target.service != wanted)
      refuse_without_meaning(server, name, only);
  };
  table().read(server, OB_SERVER, *this);
  target = Target::of(target_options, allow_http);
  refuse_unless(Service::EventBridge, DETAIL_TYPE, "Only events of EventBridge have one.");
  refuse_unless(Service::Sns, SUBJECT, "Only messages of SNS have one.");
  if (source_given)
    source = *source_given;
  check_format(of_format(server, target.service, format));
  check_message_format(*this, target.service);
  complete_peer(target.url);
}

void AwsOptions::read_mapping(const Options &mapping) {
  table().read(mapping, OB_USER_MAPPING, *this);
  credential_options.check_mapping();
  complete_peer_mapping();
  secrets.add(credential_options.keys.secret_access_key);
  secrets.add(credential_options.keys.session_token);
}

}  // namespace outbox::aws_sink
