/*
 * webhook_config.cpp: options are parsed when a sink is opened; the immutable result is shared by both threads.
 */
#include "webhook_config.h"

#include <algorithm>
#include <string_view>

#include "webhook_oauth.h"

namespace outbox {
namespace {

void check_url(const Options *mapping, const WebhookConfig &config) {
  if (config.target.text().empty() && mapping)
    throw BadInput(
        OB_MISSING_OPTION, URL, "option \"url\" is missing",
        "Neither the server nor PUBLIC's user mapping says where events are sent to.",
        "ALTER SERVER ... OPTIONS (ADD url 'https://...'), or give it to the user mapping when it carries a token.");
}

void set_format(const Options &server, WebhookConfig &config) {
  using Mode = CloudEvents::Mode;
  if (config.format == WebhookFormat::CloudEvents || config.format == WebhookFormat::Structured) {
    refuse_without_meaning(server, BODY,
                           "It stands for the body that the format makes, and that of a CloudEvent is fixed.");
    config.cloud_events =
        std::make_unique<CloudEvents>(config.format == WebhookFormat::Structured ? Mode::Structured : Mode::Binary,
                                      config.source, std::vector<Placement>(), CloudEvents::Binding::Http);
  } else {
    refuse_without_meaning(server, SOURCE, "It is an attribute of CloudEvents, and the format is another.");
  }
}

/* The events of a request share its URL and its headers. */
void set_batch(const Options &server, WebhookConfig &config) {
  if (!config.batch)
    return;
  const char *one_event = "In a request of several events it would be that of one of them.";
  if (config.format == WebhookFormat::CloudEvents)
    refuse_value(BATCH, "The attributes of a binary CloudEvent are headers, and a request has one of each.",
                 "Set option format to cloudevents-structured.");
  if (config.format == WebhookFormat::Raw && !config.body)
    refuse_value(BATCH, "In format \"raw\" the id of an event is a header, and a request has one of each.",
                 "Receivers drop duplicates by the id. Write it into each event's part: set option body to '{\"id\": "
                 "${id}, \"payload\": ${payload}}', or to '${payload}' if the payload has an id of its own.");
  if (config.body && config.body->empty())
    refuse_value(BATCH, "Option \"body\" is empty: there is nothing to join.", "Leave one of them out.");
  if (config.target.has_variables())
    refuse_value(BATCH, "Option \"url\" has variables, and a request has one URL.",
                 "Leave out option batch, or the variables.");
  if (config.idempotency_key)
    refuse_without_meaning(server, IDEMPOTENCY_KEY, one_event);
  refuse_without_meaning(server, FORWARD_HEADERS, one_event);
  for (auto &[name, text] : config.server_headers)
    if (text.find("${") != text.npos)
      refuse_value(BATCH, "Header \"" + name + "\" of option \"headers\" has variables. " + one_event,
                   "Write the variable into option body.");
  if (config.batch->format == BatchFormat::Lines)
    config.content_type = "application/x-ndjson";
  else if (config.cloud_events)
    config.content_type = "application/cloudevents-batch+json; charset=utf-8";
}

void set_header(const std::string &name, const std::string &value, WebhookConfig &config) {
  refuse_credential(HEADERS, "Header", name, value);
  if (config.cloud_events && (same_name(name, "content-type") || config.cloud_events->is_attribute(name)))
    refuse_value(HEADERS, "Header \"" + name + "\" is written by the format.",
                 "An attribute of a CloudEvent is a header ce_NAME of the event.");
  if (config.idempotency_key && same_name(name, "idempotency-key"))
    refuse_value(HEADERS, "Header \"" + name + "\" is written by option \"idempotency_key\".",
                 "Leave one of them out.");
  if (value.find("${") != value.npos && same_name(name, "content-type"))
    refuse_value(HEADERS, "Header \"" + name + "\" cannot have variables.",
                 "It is said once for all JSON that the sink sends.");
  if (value.find("${") != value.npos)
    config.event_headers.emplace_back(name, Template::parse(HEADERS, value));
  else if (same_name(name, "content-type"))
    config.content_type = value;
  else
    config.headers.emplace_back(name, value);
}

void set_auth(const Options &mapping, WebhookConfig &config) {
  config.auth = WebhookAuth::of(config, mapping);
  for (auto &[name, value] : config.server_headers)
    if (find_header(config.auth.headers, name))
      throw BadInput(OB_BAD_VALUE, HEADERS, "header \"" + name + "\" is given twice",
                     "Option \"headers\" of the server and the user mapping both make it.", "Leave one of them out.");
}

}  // namespace

std::shared_ptr<const WebhookConfig> parse_webhook(const Options &server, const Options *mapping) {
  auto config = std::make_shared<WebhookConfig>();
  config->head_suffices = true;
  WebhookConfig::table().read(server, OB_SERVER, *config);
  if (mapping)
    config->read_mapping(*mapping);
  check_url(mapping, *config);
  config->url_is_secret = mapping && find_option(*mapping, URL);
  config->complete_peer(config->target.origin());
  config->check_certificate_is_used(config->target.origin());
  set_format(server, *config);
  set_batch(server, *config);
  for (auto &[name, text] : config->server_headers)
    set_header(name, text, *config);
  check_oauth(*config, server, mapping);
  config->knows_mapping = mapping != nullptr;
  if (mapping) {
    set_auth(*mapping, *config);
    config->oauth = oauth_client(*config);
  }
  return config;
}

}  // namespace outbox
