/*
 * headers.h: the check that all sinks apply to an event's headers, and to columns that become headers
 * (Record::add_header()). CR, LF or NUL in a header would let its writer forge other headers, because HTTP and NATS
 * send them unchanged.
 */
#pragma once

#include <string_view>

#include "delivery/kind.h"
#include "delivery/options/options.h"

namespace outbox {

/* Throws BadInput for an empty name, or CR, LF or NUL in the name or the value. */
void check_header(std::string_view name, std::string_view value);
void check_headers(const ob_event &event);

}  // namespace outbox
