/* message_format.h: the formats of events that a message of AWS can have. */
#pragma once

#include "delivery/formats/format_options.h"
#include "target.h"

namespace outbox::aws_sink {

/* Throws BadInput. */
void check_message_format(const FormatOptions &options, Service service);

}  // namespace outbox::aws_sink
