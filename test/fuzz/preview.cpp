/* preview.cpp: any event in each format: what a sink would send can be sent, and shows none of its secrets. */
#include "test/fuzz/fuzz.h"

#include <map>
#include <span>
#include <vector>

#include "test/unit/border.h"
#include "test/fuzz/event.h"

namespace {

using Options = std::vector<ob_option>;

constexpr std::string_view marker = "s3cr3t";
constexpr const char *url = "https://example.com/hooks/${aggregate_type}/x?k=${aggregate_id}";

struct Sink {
  const char *kind;
  Options server, mapping;
};

const std::vector<Sink> &sinks() {
  static const auto &all = *new std::vector<Sink>{
      {"webhook", {{"url", url}}, {{"secret", "whsec_czNjcjN0czNjcjN0czNjcjN0czNjcjN0"}}},
      {"webhook",
       {{"url", url}, {"format", "cloudevents"}, {"source", "/${database}/${aggregate_type}"}},
       {{"token", "s3cr3ts3cr3t"}}},
      {"webhook",
       {{"url", url}, {"format", "cloudevents-structured"}},
       {{"user", "u"}, {"password", "s3cr3ts3cr3t"}}},
      {"webhook",
       {{"url", url}, {"format", "raw"}, {"method", "PUT"}, {"idempotency_key", "true"}, {"forward_headers", "*"}},
       {{"headers", R"({"X-Key": "s3cr3ts3cr3t"})"}}},
      {"webhook",
       {{"url", "https://example.com/"},
        {"body", R"({"id": ${id}, "p": ${payload}, "t": "a ${event_type} b"})"},
        {"headers", R"({"X-T": "${header.tenant}"})"}},
       {}},
      {"webhook", {{"url", "https://example.com/"}}, {{"url", "https://example.com/s3cr3ts3cr3t/${aggregate_id}"}}},
      {"kafka", {{"bootstrap_servers", "localhost:1"}}, {}},
      {"kafka",
       {{"bootstrap_servers", "localhost:1"},
        {"topic", "t.${event_type}"},
        {"format", "cloudevents"},
        {"security_protocol", "SASL_SSL"},
        {"sasl_mechanism", "SCRAM-SHA-512"}},
       {{"sasl_username", "u"}, {"sasl_password", "s3cr3ts3cr3t"}}},
      {"kafka", {{"bootstrap_servers", "localhost:1"}, {"format", "cloudevents-structured"}}, {}},
      {"kafka", {{"bootstrap_servers", "localhost:1"}, {"format", "debezium"}}, {}},
  };
  return all;
}

std::string text_of(const ob_text &text) {
  return text.data ? std::string(text.data, text.len) : std::string();
}

}  // namespace

void fuzz::one_input(std::string_view data) {
  static const bool named = (ob_set_origin("shop", 3), true);
  (void)named;
  Input input(data);
  const Sink &sink = sinks()[input.digit() % sinks().size()];
  input.line();
  Event event(input);
  ob_error error{};
  static auto &checkers = *new std::map<const Sink *, ob_checker *>; /* to read options is another target's subject */
  ob_checker *&checker = checkers[&sink];
  if (!checker)
    checker = border::checker_open(sink.kind, sink.server, &sink.mapping, &error);
  HOLDS(checker);
  bool good = border::check(checker, event.raw, &error);
  HOLDS(good == (error.kind == OB_OK) && error.kind != OB_INTERNAL);
  if (border::check_new(checker, event.raw, &error))
    HOLDS(good);
  ob_preview *preview = checker->kind->preview_open(checker, &event.raw, 1'614'265'330, &error);
  HOLDS((preview != nullptr) == good);
  if (!preview) {
    HOLDS(error.message[0] != '\0');
    return;
  }

  bool from_event = data.find(marker) != data.npos || data.find("czNj") != data.npos;
  HOLDS(preview->n > 0);
  for (const ob_part &shown : std::span(preview->parts, preview->n)) {
    std::string part = shown.part, name = text_of(shown.name), bytes = text_of(shown.bytes);
    HOLDS(!shown.bytes.data || !shown.text.data);
    for (const std::string &text : {name, bytes, text_of(shown.text)})
      HOLDS(from_event || (text.find(marker) == text.npos && text.find("czNj") == text.npos));
    if (part == "header" && sink.kind == std::string_view("webhook"))
      HOLDS((name + bytes).find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos);
    if (part == "header")
      HOLDS(!name.empty());
    if (part == "url" && shown.bytes.data)
      HOLDS(bytes.starts_with("https://example.com/"));
    if (part == "topic")
      HOLDS(!bytes.empty() && bytes.size() <= 249 &&
            bytes.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
                std::string::npos);
  }
  ob_release(preview);
}
