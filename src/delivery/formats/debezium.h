/*
 * debezium.h: the record that Debezium's Outbox Event Router would have sent with its defaults and string
 * converters, so that its consumers need no change: the key as text, the header `id`, the payload as the value.
 */
#pragma once

#include "record.h"

namespace outbox {

/* Key, value and headers; the rest of the record is the caller's. */
void debezium_record(const ob_event &event, Record &record);

}  // namespace outbox
