/* grpc_options.cpp: the table of options; those of the connection are common to all HTTP sinks (http_peer.h). */
#include "grpc_options.h"

#include <algorithm>

#include "delivery/http/url_parts.h"

namespace outbox::grpc {
namespace {

std::string parse_url(const std::string &name, const std::string &value) {
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
                 "Put a token into the user mapping: CREATE USER MAPPING FOR PUBLIC SERVER ... OPTIONS (token "
                 "'...').");
  case OriginFault::NotAscii:
    refuse_value(name, host_is_not_ascii, write_punycode);
  }
  if (std::string_view rest = std::string_view(value).substr(origin_of(value).size()); !rest.empty() && rest != "/")
    refuse_value(name, "It ends after the port.", "The method that is called is option \"method\".");
  return std::string(origin_of(value));
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

}  // namespace

const OptionTable<GrpcOptions> &GrpcOptions::table() {
  using Of = GrpcOptions;
  static const auto &table = *new OptionTable<Of>(
      row(URL, &Of::origin, As{parse_url, "`https://host:port`"},
          "The server; `http` (HTTP/2 without TLS, from the first byte on) with `allow_http`.")
          .otherwise("required"),
      row(METHOD, &Of::call_method, Text{check_method, "`/PACKAGE.SERVICE/METHOD`"},
          "The unary method that is called."),
      row(FORMAT, &Of::form,
          Choice<MessageForm>{{{"event", MessageForm::Event}, {"payload_bytes", MessageForm::PayloadBytes}}},
          "What is sent: the message `outbox.v1.Event` of [sink.proto](sinks/grpc/sink.proto), or the bytes of the "
          "event as they are."),
      row(MAX_MESSAGE, &Of::max_message, Size{1024, size_t{2047} << 20},
          "Largest message; keep it within what the server receives, which by default is this in most languages: "
          "`outbox.doctor()` names a sink whose limit is above it."),
      row(HEADERS, &Of::server_headers,
          As{parse_metadata, "a flat JSON object: `{\"x-tenant\": \"${header.tenant}\"}`"},
          "Metadata, in printable ASCII, with the variables of "
          "[a Kafka topic](docs/kafka-reference.md#topic-key-partition-timestamp). Credentials (`authorization`, "
          "`x-api-key`, `...-token`) are accepted in the user mapping only."),
      HttpPeer::rows(),
      row(HEADERS, &Of::mapping_headers, As{parse_metadata, "a flat JSON object"},
          "Metadata that is secret, without variables.")
          .in_user_mapping(),
      row(TOKEN, &Of::token, Text{check_bearer_token}, "Sent as the metadata `authorization: Bearer ...`.")
          .as_secret(),
      HttpPeer::certificate_rows());
  return table;
}

void GrpcOptions::read_server(const Options &server) {
  table().read(server, OB_SERVER, *this);
  if (origin.empty())
    throw BadInput(OB_MISSING_OPTION, URL, "option \"url\" is required", "The sink needs a server to call.",
                   "Example: OPTIONS (url 'https://events.example.com:443').");
  http2 = true;
  complete_peer(origin);
}

void GrpcOptions::read_mapping(const Options &mapping) {
  table().read(mapping, OB_USER_MAPPING, *this);
  complete_peer_mapping();
  if (!token.empty() && find_header(mapping_headers, "authorization"))
    throw BadInput(OB_BAD_VALUE, TOKEN, "options \"headers\" and \"token\" exclude each other",
                   "Each of them makes the metadata authorization.", "Leave one of them out.");
  secrets.add(token);
  for (auto &[name, value] : mapping_headers)
    secrets.add_header(value);
}

}  // namespace outbox::grpc
