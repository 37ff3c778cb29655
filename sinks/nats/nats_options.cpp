/*
 * nats_options.cpp: the table of options, and the checks of their values. Like a Kafka sink's brokers, hosts may be
 * named by any owner of a sink: no error text contains what the peer at an address has answered, unless it speaks
 * NATS.
 */
#include "nats_options.h"

#include <algorithm>
#include <initializer_list>

#include "delivery/base/clean_text.h"
#include "delivery/formats/format_options.h"
#include "nats_message.h"
#include "subject.h"

namespace outbox::nats {
namespace {

using std::chrono::seconds;

constexpr PeerWords server_words{"server", "4222", "4222"};
constexpr std::initializer_list<OptionName> logins = {USER, TOKEN, CREDENTIALS, NKEY_SEED};

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

/* Of user, password and token. */
void check_not_empty(const std::string &name, const std::string &value) {
  if (value.empty())
    refuse_value(name, "It is empty.");
}

/* In whole seconds. */
seconds parse_ping_interval(const std::string &name, const std::string &value) {
  return std::chrono::ceil<seconds>(parse_duration(name, value, seconds(1), seconds(3600)));
}
}  // namespace

uint32_t parse_max_in_flight(const std::string &name, const std::string &value) {
  return static_cast<uint32_t>(parse_int(name, value, 1, 50'000));
}

size_t parse_max_message_bytes(const std::string &name, const std::string &value) {
  return static_cast<size_t>(parse_int(name, value, 1024, 67'108'864)); /* the server's own limit of its limit */
}

static std::vector<OptionSpec> make_options() {
  std::vector<OptionSpec> all{
      server_option(HOSTS, check_hosts,
                    "Required: servers of one cluster, host or host:port, separated by commas and tried in turn. The "
                    "default port is 4222."),
      server_option(SUBJECT, check_subject,
                    "Subject of an event, a template with ${aggregate_type}, ${event_type}, ${header.NAME} and the "
                    "like. Default 'outbox.event.${aggregate_type}.${event_type}'."),
      server_option(STREAM, check_stream,
                    "Stream that must store the events: another one refuses them. Default: any."),
      server_option(MAX_IN_FLIGHT, check<parse_max_in_flight>,
                    "Messages that may wait for their acknowledgement at the same time, of different keys: 1 to "
                    "50000. Default 2000."),
      server_option(MAX_MESSAGE_BYTES, check<parse_max_message_bytes>,
                    "Largest message in bytes, headers included, at most the server's max_payload: 1024 to 67108864. "
                    "Default 1048576."),
      server_option(PING_INTERVAL, check<parse_ping_interval>,
                    "A server that is silent for twice as long is gone: 1s to 1h. Default 30s."),
      server_option(
          INBOX_PREFIX, check_inbox_prefix,
          "Where acknowledgements arrive: the user must be allowed to subscribe below it. Default '_INBOX'."),
      mapping_option(USER, check_not_empty, "Name to log in with."),
      secret_option(PASSWORD, check_not_empty, "Password of the user."),
      secret_option(TOKEN, check_not_empty, "Token to log in with."),
      secret_option(CREDENTIALS, check<Credentials::parse>,
                    "Content of a .creds file: the JWT of a user and the seed of its nkey."),
      secret_option(NKEY_SEED, check<Nkey::parse>, "Seed of an nkey to log in with: SU..."),
  };
  const std::vector<OptionSpec> &format = FormatOptions::specs();
  all.insert(all.begin() + 3, format.begin(), format.end());
  const std::vector<OptionSpec> &connection = ConnectOptions::specs();
  all.insert(all.end(), connection.begin(), connection.end());
  return all;
}

const std::vector<OptionSpec> &nats_options() {
  static const auto &specs = *new std::vector<OptionSpec>(make_options());
  return specs;
}

void check_user_mapping(const Options &mapping) {
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
  auto required = [](OptionName name, OptionName with) {
    throw BadInput(OB_MISSING_OPTION, name,
                   "option \"" + std::string(name) + "\" is required with \"" + with.text + "\"",
                   "The server asks for both.");
  };
  if (find_option(mapping, USER) && !find_option(mapping, PASSWORD))
    required(PASSWORD, USER);
  if (find_option(mapping, PASSWORD) && !find_option(mapping, USER))
    required(USER, PASSWORD);
  ConnectOptions::check_mapping(mapping);
}

void add_credentials(const Options &mapping, SecretMask &mask) {
  if (const std::string *text = find_option(mapping, CREDENTIALS)) {
    Credentials credentials = Credentials::parse(CREDENTIALS, *text);
    mask.add(credentials.jwt);
    mask.add(credentials.seed);
  }
}

std::string Connecting::who() const {
  if (!jwt.empty())
    return "the credentials of " + nkey->public_key();
  if (nkey)
    return "nkey " + nkey->public_key();
  if (!token.empty())
    return "the token";
  if (!user.empty())
    return "user \"" + clean_text(user) + "\"";
  return certificate_pem.empty() ? "a client without a login" : "the client's certificate";
}

Connecting parse_connecting(const Options &server, const Options *mapping, Owner owner) {
  Connecting made{ConnectOptions::parse(server_words, server, mapping, owner)};
  read_option(server, PING_INTERVAL, parse_ping_interval, made.ping_interval);
  if (const std::string *prefix = find_option(server, INBOX_PREFIX))
    made.inbox_prefix = *prefix;
  if (!mapping)
    return made;

  auto take = [mapping](OptionName name, std::string &into) {
    if (const std::string *value = find_option(*mapping, name))
      into = *value;
  };
  take(USER, made.user);
  take(PASSWORD, made.password);
  take(TOKEN, made.token);
  if (const std::string *text = find_option(*mapping, CREDENTIALS)) {
    Credentials credentials = Credentials::parse(CREDENTIALS, *text);
    made.jwt = credentials.jwt;
    made.nkey = Nkey::parse(CREDENTIALS, credentials.seed);
  }
  read_option(*mapping, NKEY_SEED, Nkey::parse, made.nkey);
  return made;
}

}  // namespace outbox::nats
