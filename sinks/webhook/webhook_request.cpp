/* webhook_request.cpp: makes the request of an event, for sending and for previews. */
#include <algorithm>

#include "delivery/base/uuid.h"
#include "delivery/formats/standard_webhooks.h"
#include "webhook_config.h"

namespace outbox {
namespace {

/* A buffer per thread; never destroyed, so no destructor runs at exit. */
Record &scratch_record() {
  static thread_local Record &record = *new Record;
  record.begin();
  return record;
}

void check_cloud_event(const CloudEvents &format, const ob_event &event) {
  format.check(event);
  ob_event without = event; /* checks know only the length of the payload */
  if (event.payload.data)
    without.payload = {"", 0};
  format.write(without, scratch_record());
}

void check_event_header(const std::string &name, const Template &value, const ob_event &event) {
  std::string text;
  if (value.render(event, text) && has_control(text))
    throw BadInput(OB_BAD_VALUE, "headers", "value of header \"" + name + "\" contains a control character",
                   "Option \"headers\" of the sink makes it of the event's " + value.variables() + ".",
                   "Change the event, or write the variable into the body.");
}

/* A string of structured fields (RFC 8941): quoted printable ASCII. */
std::string idempotency_key_of(const ob_event &event) {
  if (!event.dedup_key.data)
    return '"' + uuid_text(event.id) + '"';
  std::string quoted = "\"";
  for (char c : view(event.dedup_key)) {
    if (c < 0x20 || c >= 0x7f)
      throw BadInput(OB_BAD_VALUE, "dedup_key", "dedup_key cannot be sent as Idempotency-Key",
                     "Option \"idempotency_key\" of the sink sends it, and that header has printable ASCII only.",
                     "Use another dedup_key, or send one of your own choice by option \"headers\".");
    if (c == '"' || c == '\\')
      quoted += '\\';
    quoted += c;
  }
  return quoted += '"';
}

}  // namespace

void WebhookConfig::check_event(const ob_event &event) const {
  for (const ob_header &header : headers_of(event))
    if (!header.binary) /* binary headers are not sent */
      check_http_header(view(header.name), view(header.value));
  if (event.payload_is_bytes && has_control(view(event.content_type)))
    throw BadInput(OB_BAD_VALUE, "content_type", "content type contains a control character",
                   "It is sent as the header Content-Type.");
  if (event.payload_is_bytes && batch && !body && !cloud_events)
    throw BadInput(OB_BAD_VALUE, "payload_bytes", "an event with payload_bytes cannot be sent to this sink",
                   "Option \"batch\" of the sink joins events to JSON, and bytes are none.",
                   "Send it to a sink without that option, or set option \"format\" to cloudevents-structured, which "
                   "has them in base64.");
  if (cloud_events)
    check_cloud_event(*cloud_events, event);
  if (target.has_variables())
    (void)target.render(event);
  for (auto &[name, value] : event_headers)
    check_event_header(name, value, event);
  if (idempotency_key)
    (void)idempotency_key_of(event);
}

/* Writes the body and the headers that describe it. */
void WebhookConfig::write_content(const ob_event &event, HttpMessage &request) const {
  if (cloud_events) {
    Record &record = scratch_record();
    cloud_events->write(event, record);
    request.body = view(record.value);
    for (const ob_header &header : record.headers)
      request.headers.emplace_back(view(header.name), view(header.value));
    return;
  }
  std::string_view type = content_type;
  bool has_content = true;
  if (body) {
    body->render(event, request.body);
    has_content = !body->empty();
  } else if (event.payload_is_bytes) {
    request.body = view(event.payload);
    type = event.content_type.len ? view(event.content_type) : "application/octet-stream";
  } else if (format == WebhookFormat::Raw) {
    request.body = view(event.payload);
    has_content = event.payload.data != nullptr;
  } else {
    request.body = standard_webhooks::body(event);
  }
  if (has_content)
    request.headers.emplace_back("Content-Type", type);
  if (event.is_test)
    request.headers.emplace_back("Outbox-Probe", "true");
}

/* Writes the event's own headers that the sink's owner has listed, except those that the sink writes, even if the
 * sink's has no value. */
void WebhookConfig::write_event_headers(const ob_event &event, HttpMessage &request) const {
  for (const ob_header &header : headers_of(event)) {
    std::string_view name = view(header.name);
    if (!forwarded.takes(name))
      continue;
    bool written = (cloud_events && cloud_events->is_attribute(name)) || has_same_variable(request.headers, name) ||
                   has_same_variable(auth.headers, name) ||
                   std::any_of(event_headers.begin(), event_headers.end(),
                               [&](auto &given) { return same_variable(given.first, name); });
    if (!header.binary && !written)
      request.headers.emplace_back(name, view(header.value));
  }
}

/* HTTP ignores blanks around a value. */
static void clear_blank_values(HttpHeaders &headers) {
  for (auto &[name, value] : headers)
    if (value.find_first_not_of(" \t") == value.npos)
      value.clear();
}

HttpMessage WebhookConfig::render_part(const ob_event &event) const {
  HttpMessage whole, part;
  write_content(event, whole);
  part.body = std::move(whole.body);
  part.weight = part.body.size() + 1; /* with what separates it from the next */
  part.parts.push_back(uuid_text(event.id));
  if (event.is_test)
    part.headers.emplace_back("Outbox-Probe", "true");
  return part;
}

HttpMessage WebhookConfig::joined(const std::vector<HttpMessage> &parts) const {
  HttpMessage request;
  request.headers = parts.at(0).headers;
  request.body = batch_body(batch->format, parts);
  request.headers.emplace_back("User-Agent", "outbox");
  request.headers.emplace_back("Content-Type", content_type);
  request.headers.emplace_back(ID_HEADER, batch_id(parts));
  request.headers.insert(request.headers.end(), headers.begin(), headers.end());
  clear_blank_values(request.headers);
  return request;
}

HttpMessage WebhookConfig::render(const ob_event &event) const {
  if (batch)
    return render_part(event);
  HttpMessage request;
  if (target.has_variables())
    request.url = target.render(event);
  request.headers.emplace_back("User-Agent", "outbox");
  write_content(event, request);
  request.headers.emplace_back(ID_HEADER, uuid_text(event.id));
  if (idempotency_key)
    request.headers.emplace_back("Idempotency-Key", idempotency_key_of(event));
  request.headers.insert(request.headers.end(), headers.begin(), headers.end());
  for (auto &[name, value] : event_headers)
    if (std::string text; value.render(event, text))
      request.headers.emplace_back(name, std::move(text));
  write_event_headers(event, request);
  clear_blank_values(request.headers);
  return request;
}

HttpHeaders WebhookConfig::attempt_headers(const HttpMessage &request, const std::string *token, int64_t now) const {
  HttpHeaders added = auth.headers;
  if (token)
    added.emplace_back("Authorization", "Bearer " + *token);
  added.emplace_back(TIMESTAMP_HEADER, std::to_string(now));
  std::string signatures;
  for (const standard_webhooks::SigningKey &key : auth.signing_keys)
    signatures.append(signatures.empty() ? "" : " ")
        .append(key.sign(*find_header(request.headers, ID_HEADER), now, request.body));
  if (!signatures.empty())
    added.emplace_back(SIGNATURE_HEADER, std::move(signatures));
  return added;
}

}  // namespace outbox
