/* grpc_config.cpp: what a sink's options mean for an event. */
#include "grpc_config.h"

#include <algorithm>

#include "delivery/base/text_view.h"
#include "grpc_status.h"

namespace outbox::grpc {
namespace {

PreviewPart bytes_part(const char *part, std::string name, std::string bytes) {
  return {part, std::move(name), std::move(bytes), {}};
}

PreviewPart text_part(const char *part, std::string name, std::string text) {
  return {part, std::move(name), {}, std::move(text)};
}

/* HTTP/2 has names in lower case. */
std::string lower(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
  return name;
}

}  // namespace

GrpcConfig::GrpcConfig(const Options &server, const Options *mapping) : knows_mapping_(mapping != nullptr) {
  if ((curl_version_info(CURLVERSION_NOW)->features & CURL_VERSION_HTTP2) == 0)
    throw BadInput(OB_INTERNAL, {}, "libcurl of this server cannot speak HTTP/2",
                   "gRPC needs it, and libcurl was built without nghttp2.",
                   "Install the libcurl of the distribution.");
  read_server(server);
  url_ = origin + call_method;
  for (auto &[name, value] : server_headers) {
    refuse_credential(HEADERS, "Metadata", name, value);
    if (value.find("${") == value.npos)
      headers_.emplace_back(name, value);
    else
      event_headers_.emplace_back(lower(name), Template::parse(HEADERS, value));
  }
  if (!mapping)
    return;

  read_mapping(*mapping);
  check_certificate_is_used(origin);
  secret_headers_ = mapping_headers;
  if (!token.empty())
    secret_headers_.emplace_back("authorization", "Bearer " + token);
  for (auto &[name, value] : secret_headers_)
    if (find_header(server_headers, name))
      throw BadInput(OB_BAD_VALUE, HEADERS, "metadata \"" + name + "\" is given twice",
                     "Option \"headers\" of the server and the user mapping both make it.", "Leave one of them out.");
}

void GrpcConfig::check_event(const ob_event &event) const {
  check_message_size(message_size(form, event), max_message,
                     {"a gRPC message", "Its message has",
                      "Raise option \"max_message\" of the sink and what the server receives, or send a reference "
                      "to the data."});
  (void)event_metadata(event);
}

HttpHeaders GrpcConfig::fixed_metadata() const {
  HttpHeaders metadata{{"Content-Type", "application/grpc+proto"},
                       {"TE", "trailers"},
                       {"User-Agent", "outbox"},
                       {"grpc-timeout", std::to_string(timeout.count()) + "m"}};
  metadata.insert(metadata.end(), headers_.begin(), headers_.end());
  return metadata;
}

HttpHeaders GrpcConfig::event_metadata(const ob_event &event) const {
  HttpHeaders metadata = metadata_of(event);
  if (event.is_test)
    metadata.emplace_back("outbox-probe", "true");
  for (auto &[name, value] : event_headers_) {
    std::string text;
    if (!value.render(event, text))
      continue;
    if (!is_metadata_value(text))
      throw BadInput(OB_BAD_VALUE, "headers",
                     "value of metadata \"" + name + "\" has other characters than printable ASCII",
                     "Option \"headers\" of the sink makes it of the event's " + value.variables() + ".",
                     "Change the event, or let the server read the value from the message.");
    metadata.emplace_back(name, std::move(text));
  }
  return metadata;
}

HttpMessage GrpcConfig::render(const ob_event &event) const {
  return {.headers = event_metadata(event), .body = framed(message_of(form, event))};
}

HttpCall GrpcConfig::call(const HttpContent & /*content*/) const {
  HttpCall call{.headers = fixed_metadata()};
  call.headers.insert(call.headers.end(), secret_headers_.begin(), secret_headers_.end());
  return call;
}

HttpVerdict GrpcConfig::classify_response(const HttpTransfer &answer, CURLcode code,
                                          const HttpContent &content) const {
  if (!answer.is_http2())
    return {{Outcome::SinkDown, "the server does not speak HTTP/2, which gRPC needs", OB_REASON_CONNECTION}};
  const Status status = status_of(answer, code);
  const size_t size = content.messages.at(0).body.size();
  const bool too_large =
      status.code == Code::ResourceExhausted && (says_too_large(status) || sizes_->is_too_large(size));
  HttpVerdict verdict{verdict_of(status, too_large, secrets)};
  if (verdict.outcome == Outcome::Sent)
    sizes_->accepted(size);
  if (const char *what = remedy(status.code); *what && verdict.outcome != Outcome::Sent)
    verdict.error.append(". ").append(what);
  verdict.refuses_token = status.code == Code::Unauthenticated;
  verdict.too_many = (status.code == Code::ResourceExhausted && !too_large) || status.http == 429;
  verdict.slow_down = verdict.too_many || status.code == Code::Unavailable;
  if (verdict.slow_down)
    verdict.pause_ms = status.delay_ms;
  return verdict;
}

Preview GrpcConfig::preview(const ob_event &event, int64_t) const {
  Preview parts{bytes_part("url", {}, origin), bytes_part("method", {}, call_method)};
  const std::string message = message_of(form, event);
  parts.push_back(bytes_part("metadata", "accept", "*/*")); /* libcurl's own, as is the length */
  for (auto &[name, value] : fixed_metadata())
    parts.push_back(bytes_part("metadata", lower(name), value));
  for (auto &[name, value] : event_metadata(event))
    parts.push_back(bytes_part("metadata", name, value));
  if (!knows_mapping_)
    parts.push_back(text_part("metadata", "authorization", "(Bearer ***, when the user mapping has token)"));
  for (auto &[name, value] : secret_headers_)
    parts.push_back(text_part("metadata", lower(name), value.starts_with("Bearer ") ? "(Bearer ***)" : "(***)"));
  parts.push_back(bytes_part("metadata", "content-length", std::to_string(framed(message).size())));
  parts.push_back(bytes_part("message", {}, message));
  return parts;
}

}  // namespace outbox::grpc
