/* grpc_options.cpp: the table of options; those of the connection are common to all HTTP sinks (http_peer.h). */
#include "grpc_options.h"

#include <algorithm>

#include "delivery/http/http_peer.h"
#include "delivery/http/url_parts.h"
#include "grpc_message.h"

namespace outbox::grpc {
namespace {

void check_url(const std::string &name, const std::string &value) {
  constexpr const char *example = "Write it as https://events.example.com:443.";
  switch (origin_fault(value)) {
  case OriginFault::None:
    break;
  case OriginFault::Port:
    refuse_value(name, "A URL's port is a number from 1 to 65535.", example);
  case OriginFault::NoHost:
    refuse_value(name, "Expected an https URL such as https://events.example.com:443.", example);
  case OriginFault::User:
    refuse_value(name, "A URL must not carry a user name or a password.",
                 "Put a token into the user mapping: CREATE USER MAPPING FOR PUBLIC SERVER ... OPTIONS (bearer_token "
                 "'...').");
  case OriginFault::NotAscii:
    refuse_value(name, host_is_not_ascii, write_punycode);
  }
  if (std::string_view rest = std::string_view(value).substr(origin_of(value).size()); !rest.empty() && rest != "/")
    refuse_value(name, "It ends after the port.", "The method that is called is option \"method\".");
}

/* /package.Service/Method */
void check_method(const std::string &name, const std::string &value) {
  auto is_name = [](std::string_view part) {
    return !part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
    });
  };
  const std::string_view path = value;
  const size_t slash = path.rfind('/');
  if (!path.starts_with('/') || slash == 0 || !is_name(path.substr(1, slash - 1)) || !is_name(path.substr(slash + 1)))
    throw_bad_value(name, value, "Expected /PACKAGE.SERVICE/METHOD.", "Example: '/outbox.v1.Sink/Publish'.");
}

std::vector<OptionSpec> make_options() {
  std::vector<OptionSpec> all{
      server_option(URL, check_url, "Required: the server, https://host:port. https, unless allow_http is true."),
      server_option(METHOD, check_method,
                    "The unary method that is called: /PACKAGE.SERVICE/METHOD. Default '/outbox.v1.Sink/Publish'."),
      server_option(MESSAGE, nullptr,
                    "What is sent: 'event' (the default), the message outbox.v1.Event of sink.proto; or "
                    "'payload_bytes', those of the event as they are."),
      server_option(
          MAX_MESSAGE_BYTES, check<parse_max_message_bytes>,
          "Largest message in bytes, at most what the server receives: 1024 to 2147483647. Default 4194304."),
      server_or_mapping_option(HEADERS, check<parse_metadata>,
                               "Metadata of each call, a flat JSON object: '{\"x-tenant\": \"${header.tenant}\"}'. "
                               "In the user mapping those that are secrets, without variables."),
      secret_option(BEARER_TOKEN, check_bearer_token, "Sent as the metadata 'authorization: Bearer ...'."),
  };
  for (const auto &specs : {HttpPeer::server_specs(), HttpPeer::mapping_specs()})
    all.insert(all.end(), specs.begin(), specs.end());
  return all;
}

}  // namespace

const std::vector<OptionSpec> &grpc_options() {
  static const auto &specs = *new std::vector<OptionSpec>(make_options());
  return specs;
}

void check_user_mapping(const Options &mapping) {
  HttpPeer::check_mapping(mapping);
  auto *headers = find_option(mapping, HEADERS);
  if (headers && find_option(mapping, BEARER_TOKEN) &&
      find_header(parse_metadata(HEADERS, *headers), "authorization"))
    throw BadInput(OB_BAD_VALUE, BEARER_TOKEN, "options \"headers\" and \"bearer_token\" exclude each other",
                   "Each of them makes the metadata authorization.", "Leave one of them out.");
}

SecretMask secrets_of(const Options &mapping) {
  SecretMask secrets;
  if (auto *token = find_option(mapping, BEARER_TOKEN))
    secrets.add(*token);
  if (auto *headers = find_option(mapping, HEADERS))
    for (auto &[name, value] : parse_metadata(HEADERS, *headers))
      secrets.add_header(value);
  HttpPeer::add_secrets(mapping, secrets);
  return secrets;
}

size_t parse_max_message_bytes(const std::string &name, const std::string &value) {
  return static_cast<size_t>(parse_int(name, value, 1024, 2'147'483'647));
}

HttpHeaders parse_metadata(const std::string &name, const std::string &value) {
  HttpHeaders metadata = parse_headers(name, value);
  for (auto &[key, text] : metadata) {
    auto starts = [&key = key](std::string_view prefix) { return same_name(key.substr(0, prefix.size()), prefix); };
    if (starts("grpc-") || starts("outbox-") || same_name(key, "content-type"))
      refuse_value(name, "Metadata \"" + key + "\" is written by the sink itself.", "Leave it out.");
    if (same_name(key, "traceparent") || same_name(key, "tracestate"))
      refuse_value(name, "Metadata \"" + key + "\" is the event's header of that name.",
                   "Leave it out, and give the header to outbox.enqueue().");
    if (!is_metadata_value(text))
      refuse_value(name, "The value of metadata \"" + key + "\" has other characters than printable ASCII.",
                   "Encode it (percent-encoding, base64).");
  }
  return metadata;
}

}  // namespace outbox::grpc
