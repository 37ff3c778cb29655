/*
 * nats_options.cpp: the table of options. Like a Kafka sink's brokers, hosts may be named by any owner of a sink: no
 * error text contains what the peer at an address has answered, unless it speaks NATS.
 */
#include "nats_options.h"

#include <algorithm>
#include <initializer_list>

#include "delivery/base/clean_text.h"
#include "nats_message.h"
#include "subject.h"

namespace outbox::nats {
namespace {

using namespace std::chrono_literals;

constexpr std::initializer_list<OptionName> logins = {USER, TOKEN, CREDENTIALS};

void check_stream(const std::string &name, const std::string &value) {
  auto illegal = [](char c) {
    return static_cast<unsigned char>(c) <= 0x20 || c == 0x7F ||
           std::string_view(".*>/\\").find(c) != std::string_view::npos;
  };
  if (value.empty() || value.size() > 255 || std::any_of(value.begin(), value.end(), illegal))
    throw_bad_value(name, value, "The name of a stream has 1 to 255 bytes, without blanks and without . * > / \\.");
}

void check_inbox_prefix(const std::string &name, const std::string &value) {
  bool long_enough = !value.empty() && value.size() <= 128;
  if (!long_enough || !subject_problem("x" + value).empty() || value.starts_with('.'))
    throw_bad_value(name, value, "Expected the beginning of a subject, of 1 to 128 bytes.",
                    "Example: '_INBOX_outbox'.");
}

}  // namespace

const OptionTable<NatsOptions> &NatsOptions::table() {
  using Of = NatsOptions;
  static const auto &table = *new OptionTable<Of>(
      row(HOSTS, &Of::hosts, As{parse_hosts, "`host` or `host:port`, separated by commas"},
          "Servers of one cluster, tried in turn. The default port is 4222.")
          .otherwise("required"),
      row(SUBJECT, &Of::subject, As{parse_subject, "at most 1024 bytes"},
          "Subject of an event: a template with the variables of "
          "[a Kafka topic](docs/kafka-reference.md#topic-key-partition-timestamp)."),
      row(STREAM, &Of::stream, Text{check_stream, "a name"},
          "The stream that must store the events; another one refuses them. `outbox.doctor()` names a sink without "
          "it: any stream that takes the subject acknowledges then.")
          .otherwise("any"),
      FormatOptions::rows(),
      row("max_in_flight", &Of::max_in_flight, Integer{1, 50'000, "unacknowledged messages"},
          "Unacknowledged messages, of different keys, per worker."),
      row(MAX_MESSAGE, &Of::max_message, Size{1024, 67'108'864}, /* the server's own limit of its limit */
          "Largest message with its headers; at most the server's `max_payload`."),
      row("heartbeat", &Of::heartbeat, WholeSeconds{{1s, 1h}},
          "A server that sends nothing for twice as long is gone."),
      row("inbox_prefix", &Of::inbox_prefix, Text{check_inbox_prefix, "a subject of at most 128 bytes"},
          "Where acknowledgements arrive; the user needs the right to subscribe below it."),
      row(USER, &Of::user, Text{check_not_empty}, "Name to log in with.").in_user_mapping(),
      row(PASSWORD, &Of::password, Text{check_not_empty}, "Password of the user.").as_secret(),
      row(TOKEN, &Of::token, Text{check_not_empty}, "Token to log in with.").as_secret(),
      row(CREDENTIALS, &Of::credentials, As{Credentials::parse, "a file's text, or `SU...`"},
          "The content of a `.creds` file, which has a user's JWT and the seed of its nkey; or the seed of an nkey alone.")
          .as_secret(),
      ConnectOptions::rows());
  return table;
}

void NatsOptions::check_mapping(const Options &mapping) {
  const OptionName *first = nullptr;
  for (const OptionName &name : logins) {
    if (!find_option(mapping, name))
      continue;
    if (first)
      throw BadInput(OB_BAD_VALUE, name,
                     std::string("options \"") + first->text + "\" and \"" + name.text + "\" are both given",
                     "Each of them is a login of its own.", "Leave one of them out.");
    first = &name;
  }
  require_with(mapping, PASSWORD, USER);
  require_with(mapping, USER, PASSWORD);
}

void NatsOptions::check_server(const Options &server) const {
  check_format(server);
  refuse_partition("a message", SUBJECT);
  check_placements(placements, format == Format::CloudEvents);
}

std::string NatsOptions::who() const {
  if (credentials)
    return (credentials->jwt.empty() ? "nkey " : "the credentials of ") + credentials->nkey.public_key();
  if (!token.empty())
    return "the token";
  if (!user.empty())
    return "user \"" + clean_text(user) + "\"";
  return certificate_pem.empty() ? "a client without a login" : "the client's certificate";
}

}  // namespace outbox::nats
