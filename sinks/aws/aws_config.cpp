/* aws_config.cpp: what a sink's options mean for an event. */
#include "aws_config.h"

#include "delivery/options/common_options.h"
#include "delivery/options/message_size.h"
#include "request.h"

namespace outbox::aws_sink {

AwsConfig::AwsConfig(const Options &server, const Options *mapping) : maker(read(server, mapping)) {
  constexpr size_t longest_answer = 64UL << 10;
  kept_body = longest_answer;
  credentials = credential_options.source(mapping != nullptr);
}

const AwsOptions &AwsConfig::read(const Options &server, const Options *mapping) {
  read_server(server);
  if (mapping)
    read_mapping(*mapping);
  return *this;
}

std::vector<Advice> advise_aws(const AwsConfig &config, const Options &server) {
  const Target &target = config.target;
  std::vector<Advice> found = HttpPeer::advise(server, ENDPOINT);
  if (config.target_options.endpoint.empty() &&
      config.credential_options.keys.access_key_id.starts_with("AKIA")) /* the keys of a user; those of a role end */
    found.push_back(
        {"keys", "It signs with the keys of a user, which do not end: anybody who reads them can use them for years.",
         "-- if the server runs in AWS, let it use its role, as a superuser: BEGIN; " +
             set_option(server, aws::AWS_CREDENTIALS, "chain") + " ALTER USER MAPPING FOR PUBLIC SERVER " + the_sink +
             " OPTIONS (DROP aws_access_key_id, DROP aws_secret_access_key); COMMIT;",
         true});
  if (!target.fifo && CommonOptions::of(server).ordered)
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

void AwsConfig::check_size(size_t size) const {
  check_message_size(size, max_message,
                     {"a message of AWS", "With its attributes it has",
                      "Send a reference to the data, or raise option \"max_message\" of the sink as far as the "
                      "target allows."});
}

void AwsConfig::check_event(const ob_event &event) const {
  check_size(maker.check(event));
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
