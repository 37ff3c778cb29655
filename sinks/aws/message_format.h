/* message_format.h: the formats of events that a message of AWS can have. */
#pragma once

#include "delivery/formats/format_options.h"
#include "target.h"

namespace outbox::aws_sink {

/* Throws BadInput. */
FormatOptions parse_format(const Options &server, Service service);

}  // namespace outbox::aws_sink
