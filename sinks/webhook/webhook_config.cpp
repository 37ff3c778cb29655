/*
 * webhook_config.cpp: options are parsed when a sink is opened; the immutable result is shared by both threads.
 */
#include "webhook_config.h"

#include <algorithm>
#include <string_view>

#include "webhook_oauth.h"
#include "webhook_options.h"

namespace outbox {
namespace {

using Mode = CloudEvents::Mode;
enum class Format { StandardWebhooks, CloudEvents, Structured, Raw };

void check_each(const Options &server, const Options *mapping) {
  for (const OptionSpec &spec : webhook_options()) {
    auto *of_server = spec.in_server ? find_option(server, spec.name) : nullptr;
    auto *of_mapping = spec.in_mapping && mapping ? find_option(*mapping, spec.name) : nullptr;
    for (const std::string *value : {of_server, of_mapping})
      if (value && spec.check)
        spec.check(spec.name, *value);
  }
}

void set_url(const Options &server, const Options *mapping, WebhookConfig &config) {
  auto *secret = mapping ? find_option(*mapping, URL) : nullptr, *url = secret ? secret : find_option(server, URL);
  if (!url && mapping)
    throw BadInput(
        OB_MISSING_OPTION, URL, "option \"url\" is missing",
        "Neither the server nor PUBLIC's user mapping says where events are sent to.",
        "ALTER SERVER ... OPTIONS (ADD url 'https://...'), or give it to the user mapping when it carries a token.");
  if (!url)
    return;
  config.url = *url;
  config.url_is_secret = secret != nullptr;
  config.target = WebhookUrl::parse(URL, *url);
}

void set_format(const Options &server, WebhookConfig &config) {
  auto format = parse_choice<Format>(server, FORMAT,
                                     {{"standard-webhooks", Format::StandardWebhooks},
                                      {"cloudevents", Format::CloudEvents},
                                      {"cloudevents-structured", Format::Structured},
                                      {"raw", Format::Raw}});
  config.raw = format == Format::Raw;
  if (format == Format::CloudEvents || format == Format::Structured) {
    refuse_without_meaning(server, BODY,
                           "It stands for the body that the format makes, and that of a CloudEvent is fixed.");
    config.cloud_events = std::make_unique<CloudEvents>(
        format == Format::Structured ? Mode::Structured : Mode::Binary,
        CloudEvents::source(find_option(server, SOURCE)), std::vector<Placement>(), CloudEvents::Binding::Http);
  } else {
    refuse_without_meaning(server, SOURCE, "It is an attribute of CloudEvents, and the format is another.");
  }
  read_option(server, BODY, BodyTemplate::parse, config.body);
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

void set_auth(const Options &server, const Options &mapping, WebhookConfig &config) {
  config.auth = WebhookAuth::parse(mapping);
  auto *given = find_option(server, HEADERS);
  for (auto &[name, value] : given ? parse_headers(HEADERS, *given) : HttpHeaders())
    if (find_header(config.auth.headers, name))
      throw BadInput(OB_BAD_VALUE, HEADERS, "header \"" + name + "\" is given twice",
                     "Option \"headers\" of the server and the user mapping both make it.", "Leave one of them out.");
}

}  // namespace

std::shared_ptr<const WebhookConfig> parse_webhook(const Options &server, const Options *mapping) {
  check_each(server, mapping);

  auto config = std::make_shared<WebhookConfig>();
  config->head_suffices = true;
  set_url(server, mapping, *config);
  config->parse(server, mapping, config->target.origin());
  read_option(server, METHOD, parse_method, config->method);
  set_format(server, *config);
  read_option(server, IDEMPOTENCY_KEY, parse_bool, config->idempotency_key);
  if (auto *value = find_option(server, HEADERS))
    for (auto &[name, text] : parse_headers(HEADERS, *value))
      set_header(name, text, *config);
  auto *forwarded = find_option(server, FORWARD_HEADERS);
  config->forwarded = ForwardedHeaders::parse(FORWARD_HEADERS, forwarded ? *forwarded : ForwardedHeaders::defaults);
  std::string prefix = parse_choice<const char *>(server, HEADER_PREFIX, {{"webhook", "webhook"}, {"svix", "svix"}});
  config->id_header = prefix + "-id";
  config->timestamp_header = prefix + "-timestamp";
  config->signature_header = prefix + "-signature";

  check_oauth(server, mapping);
  config->knows_mapping = mapping != nullptr;
  if (mapping) {
    set_auth(server, *mapping, *config);
    config->secrets = webhook_secrets(*mapping);
    config->oauth = parse_oauth(server, *mapping, config->guard);
  }
  return config;
}

}  // namespace outbox
