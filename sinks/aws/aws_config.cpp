/* aws_config.cpp: the table of options, and what they mean for an event. */
#include "aws_config.h"

#include <algorithm>
#include <iterator>

#include "request.h"

namespace outbox::aws_sink {
namespace {

constexpr OptionName MAX_MESSAGE_BYTES{"max_message_bytes"};
constexpr aws::CredentialNames credential_names{};

void check_max_message_bytes(const std::string &name, const std::string &value) {
  parse_int(name, value, 1024, 1'048'576);
}

std::vector<OptionSpec> make_options() {
  std::vector<OptionSpec> all{
      server_option(
          QUEUE_URL, check_queue_url,
          "URL of the SQS queue that gets the events. One of queue_url, topic_arn and event_bus is required."),
      server_option(TOPIC_ARN, check_topic_arn, "ARN of the SNS topic that gets the events."),
      server_option(EVENT_BUS, check_event_bus,
                    "Name or ARN of the EventBridge bus that gets the events, such as 'default'."),
      server_option(REGION, check_region,
                    "Region, such as 'eu-central-1'. Required if neither URL nor ARN names it."),
      superuser_option(ENDPOINT, check_endpoint,
                       "Where requests go instead of to AWS's public host: a VPC endpoint, or a local server for "
                       "tests. Superuser only."),
      server_option(SUBJECT, check_subject, "Subject of a message of SNS: a template. Default: none."),
      server_option(DETAIL_TYPE, check_detail_type,
                    "detail-type of an event of EventBridge: a template. Default '${event_type}'."),
      server_option(MAX_MESSAGE_BYTES, check_max_message_bytes,
                    "Largest message in bytes with its attributes, and largest sum of the messages of a request: "
                    "1024 to 1048576. Default 262144."),
  };
  for (const std::vector<OptionSpec> &more :
       {FormatOptions::specs(), HttpPeer::server_specs(), aws::credential_options(), HttpPeer::mapping_specs()})
    std::copy_if(more.begin(), more.end(), std::back_inserter(all), [](const OptionSpec &spec) {
      return !std::string_view(spec.name.text).starts_with("ssl_"); /* AWS authenticates by the signature */
    });
  for (OptionSpec &spec : all)
    if (std::string_view(spec.name.text) == SOURCE.text) {
      spec.check = check_source;
      spec.description = "Source of an event of EventBridge, default 'outbox.${aggregate_type}', and attribute of "
                         "CloudEvents, default '/outbox/${database}/${aggregate_type}': a template.";
    }
  return all;
}

HttpPeer parse_peer(const Options &server, const Options *mapping, const Target &target) {
  constexpr size_t longest_answer = 64UL << 10;
  HttpPeer peer;
  peer.parse(server, mapping, target.url);
  peer.kept_body = longest_answer;
  if (mapping)
    peer.secrets = secrets_of(*mapping);
  return peer;
}

}  // namespace

SecretMask secrets_of(const Options &mapping) {
  SecretMask mask;
  HttpPeer::add_secrets(mapping, mask);
  for (OptionName name : {credential_names.secret_access_key, credential_names.session_token})
    if (const std::string *value = find_option(mapping, name))
      mask.add(*value);
  return mask;
}

void check_user_mapping(const Options &mapping) {
  aws::check_credential_mapping(mapping);
  HttpPeer::check_mapping(mapping);
}

const std::vector<OptionSpec> &aws_options() {
  static const auto &specs = *new std::vector<OptionSpec>(make_options());
  return specs;
}

AwsConfig::AwsConfig(const Options &server, const Options *mapping)
    : target(Target::parse(server)), maker(server, target), peer(parse_peer(server, mapping, target)),
      credentials(aws::parse_credentials(server, mapping)),
      from_chain(find_option(server, credential_names.credentials) != nullptr) {
  if (const std::string *value = find_option(server, MAX_MESSAGE_BYTES))
    max_message_bytes = static_cast<size_t>(parse_int(MAX_MESSAGE_BYTES, *value, 1024, 1'048'576));
}

std::vector<Advice> advise_aws(const AwsConfig &config, const Options &server, const Options *mapping) {
  const Target &target = config.target;
  std::vector<Advice> found = HttpPeer::advise(server, ENDPOINT);
  const std::string *ordered = find_option(server, ORDERED), *key = nullptr;
  if (mapping && !find_option(server, ENDPOINT))
    key = find_option(*mapping, credential_names.access_key_id);
  if (key && key->starts_with("AKIA")) /* the keys of a user; those of a role end */
    found.push_back(
        {"keys", "It signs with the keys of a user, which do not end: anybody who reads them can use them for years.",
         "-- if the server runs in AWS, let it use its role, as a superuser: BEGIN; " +
             set_option(server, credential_names.credentials, "chain") + " ALTER USER MAPPING FOR PUBLIC SERVER " +
             the_sink + " OPTIONS (DROP access_key_id, DROP secret_access_key); COMMIT;",
         true});
  if (!target.fifo && (!ordered || parse_bool(ORDERED, *ordered)))
    found.push_back({"order",
                     std::string("It is ordered, and ") +
                         (target.service == Service::EventBridge
                              ? "an event bus does not keep an order"
                              : "its target keeps no order because it is no FIFO queue or topic") +
                         ": consumers may get the events of a key in another order.",
                     "-- send to a FIFO queue or topic, or say that the order does not matter: " +
                         set_option(server, ORDERED, "false")});
  return found;
}

BadInput AwsConfig::too_large(size_t size) const {
  return {OB_TOO_LARGE, "max_message_bytes", "event is too large for a message of AWS",
          "With its attributes it has " + std::to_string(size) + " bytes, and at most " +
              std::to_string(max_message_bytes) + " are allowed.",
          "Send a reference to the data, or raise option \"max_message_bytes\" of the sink as far as the target "
          "allows."};
}

void AwsConfig::check_event(const ob_event &event) const {
  if (size_t size = maker.check(event); size > max_message_bytes)
    throw too_large(size);
}

Preview AwsConfig::preview(const ob_event &event, int64_t /*now*/) const {
  const Entry entry = maker.make(event);
  Content content = batch_request(target, {&entry.fields});
  Preview parts;
  parts.push_back({"method", {}, "POST", {}});
  parts.push_back({"url", {}, target.url, {}});
  parts.push_back({"header", "host", target.host, {}});
  for (auto &[name, value] : content.headers)
    parts.push_back({"header", name, std::move(value), {}});
  parts.push_back({"header", "x-amz-date", {}, "(the time of each attempt)"});
  parts.push_back({"header", "authorization", {}, "(AWS4-HMAC-SHA256, made for each attempt)"});
  parts.push_back({"body", {}, std::move(content.body), {}});
  return parts;
}

}  // namespace outbox::aws_sink
