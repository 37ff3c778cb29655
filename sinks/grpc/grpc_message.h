/* grpc_message.h: the message of an event: outbox.v1.Event of sink.proto, or the event's own bytes. */
#pragma once

#include <string>
#include <string_view>

#include "delivery/kind.h"
#include "delivery/http/http_headers.h"

namespace outbox::grpc {

enum class MessageForm { Event, PayloadBytes };

/* The message's size in bytes. Reads only the length of the payload. Throws BadInput for an event without
 * payload_bytes if the form needs them. */
size_t message_size(MessageForm form, const ob_event &event);

std::string message_of(MessageForm form, const ob_event &event);

/* The metadata that depends on the event: its id, and its headers for tracing. */
HttpHeaders metadata_of(const ob_event &event);

/* Whether it may be sent as metadata: printable ASCII. */
bool is_metadata_value(std::string_view value);

/* The message in gRPC's framing: a flag for compression, and the length. */
std::string framed(const std::string &message);

}  // namespace outbox::grpc
