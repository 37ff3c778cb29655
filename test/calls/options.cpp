/* options.cpp: what a session does without an engine: options that are valid and not, checks of events, previews. */
#include <cstring>
#include <span>

#include "scenario.h"

namespace calls {
namespace {

const OptionList a_webhook = {{"url", "https://example.com/${aggregate_type}"},
                              {"headers", R"({"X-Team": "orders"})"},
                              {"retry", "5s, 1m"},
                              {"rate_limit", "10/s"},
                              {"allow_networks", "10.0.0.0/8"}};
const OptionList webhook_secrets = {{"secret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, {"token", "hush-hush"}};
const OptionList cloudevents = {{"url", "https://example.com/"}, {"format", "cloudevents"}, {"source", "urn:x"}};
const OptionList a_kafka = {{"bootstrap_servers", "localhost:9092"},
                            {"topic", "${aggregate_type}.events"},
                            {"security_protocol", "sasl_plaintext"},
                            {"sasl_mechanism", "PLAIN"}};
const OptionList kafka_secrets = {{"sasl_username", "me"}, {"sasl_password", "hush-hush"}};

/* The same call may fail because memory is short, and says so; the next one says the same as ever. */
template <class Call> void as_ever(const char *what, bool expected, ob_error_kind kind, Call call) {
  ob_error error{};
  if (under_test([&] { return call(&error); }) == expected) {
    if (!expected && error.kind != kind)
      if (error.kind != OB_INTERNAL || under_test([&] { return call(&error); }) != expected || error.kind != kind)
        failed("%s failed in another way: %d, %s", what, error.kind, error.message);
    return;
  }
  if (expected == false)
    failed("%s was accepted", what);
  if (error.kind == OB_OK || error.message[0] == '\0')
    failed("%s failed without a message", what);
  if (strstr(error.message, "hush") || strstr(error.detail, "hush"))
    failed("%s shows a secret", what);
  if (!under_test([&] { return call(&error); }))
    failed("%s failed twice: %s", what, error.message);
}

void check(const char *what, const char *kind, ob_scope scope, const OptionList &options, bool superuser = true,
           ob_error_kind wrong = OB_OK) {
  as_ever(what, wrong == OB_OK, wrong,
          [&](ob_error *error) { return border::check_options(kind, scope, options, superuser, error); });
}

const Scenario options_scenario("options", [] {
  check("a webhook", "webhook", OB_SERVER, a_webhook);
  check("a webhook's mapping", "webhook", OB_USER_MAPPING, webhook_secrets);
  check("CloudEvents", "webhook", OB_SERVER, cloudevents);
  check("Kafka", "kafka", OB_SERVER, a_kafka);
  check("Kafka's mapping", "kafka", OB_USER_MAPPING, kafka_secrets);
  check("an unknown option", "webhook", OB_SERVER, {{"url", "https://example.com"}, {"colour", "red"}}, true,
        OB_UNKNOWN_OPTION);
  check("a bad value", "webhook", OB_SERVER, {{"url", "gopher://x"}}, true, OB_BAD_VALUE);
  check("a missing option", "kafka", OB_SERVER, {{"topic", "t"}}, true, OB_MISSING_OPTION);
  check("a secret in the server", "webhook", OB_SERVER, {{"url", "https://x"}, {"secret", "hush-hush"}}, true,
        OB_WRONG_PLACE);
  check("a superuser's option", "webhook", OB_SERVER, {{"url", "https://x"}, {"allow_http", "true"}}, false,
        OB_FORBIDDEN);
  check("a property", "kafka", OB_SERVER, {{"bootstrap_servers", "a:1"}, {"linger_ms", "soon"}}, true, OB_BAD_VALUE);
  check("a retry policy", "kafka", OB_SERVER, {{"bootstrap_servers", "a:1"}, {"retry", "often"}}, true, OB_BAD_VALUE);
  check("a certificate", "webhook", OB_SERVER, {{"url", "https://x"}, {"ssl_ca_pem", "hush-hush"}}, true,
        OB_BAD_VALUE);
  check("networks", "webhook", OB_SERVER, {{"url", "https://x"}, {"allow_networks", "10.0.0.0/99"}}, true,
        OB_BAD_VALUE);

  ob_common common;
  as_ever("common options", true, OB_OK,
          [&](ob_error *error) { return border::common_options("webhook", a_webhook, &common, error); });
  if (common.retry == nullptr)
    failed("the option retry was not read");
  as_ever("the owner's options", true, OB_OK,
          [&](ob_error *error) { return border::check_owner("webhook", a_webhook, webhook_secrets, error); });
  const char *names[200];
  under_test([&] { return ob_kind("kafka")->option_names("kafka", OB_SERVER, names, std::size(names)); });
  ob_match pairs[4];
  char buffer[100];
  size_t n = 0;
  as_ever("a match", true, OB_OK,
          [&](ob_error *error) { return ob_match_pairs(R"({"region": "eu"})", pairs, &n, buffer, error); });
  if (n != 1)
    failed("the match has %zu pairs", n);
  if (under_test([] { return ob_retry_delay_ms("5s, 1m", 1, false, 0); }) < 5000)
    failed("a retry comes too early");
  under_test([] {
    ob_set_networks("10.0.0.0/8, 192.168.0.0/16");
    ob_set_networks(nullptr);
    return true;
  });
});

/* A checker is opened and closed; the event's preview contains no secret. */
void preview(const char *kind, const OptionList &options, const OptionList &mapping) {
  ob_error error{};
  const std::string payload = R"({"total": 12.5})"; /* the event points to it */
  ob_event event = event_of(0, 0, payload);
  ob_checker *checker = second_try("checker_open()", [&] {
    return under_test([&] { return border::checker_open(kind, options, &mapping, &error); });
  });
  second_try("checker_check()",
             [&] { return under_test([&] { return border::check_new(checker, event, &error); }); });
  ob_preview *shown = second_try("preview_open()", [&] {
    return under_test([&] { return checker->kind->preview_open(checker, &event, 1614265330, &error); });
  });
  if (shown->n < 3)
    failed("the preview has %zu parts", shown->n);
  for (const ob_part &part : std::span(shown->parts, shown->n))
    if (std::string_view(part.bytes.data ? part.bytes.data : "", part.bytes.len).find("hush") !=
        std::string_view::npos)
      failed("the preview shows a secret");
  ob_release(shown);
  ob_release(checker);
}

const Scenario previews_scenario("previews", [] {
  preview("webhook", a_webhook, webhook_secrets);
  preview("webhook", cloudevents, {});
  preview("webhook", {{"url", "https://example.com/"}, {"body", R"({"text": ${event_type}})"}}, {});
  preview("kafka", a_kafka, kafka_secrets);
  preview("kafka", {{"bootstrap_servers", "localhost:9092"}, {"format", "cloudevents"}, {"source", "urn:x"}}, {});
});

}  // namespace
}  // namespace calls
