/*
 * low_watermark.h: tells the views up to where they need not look for a sink's first row. Under an old snapshot, and
 * while a backlog drains, the beginning of each index is full of entries that are dead and cannot go yet.
 */
#pragma once

#include "server/base/clock.h"

/* Between transactions, now and then: of the rows without available_at in this worker's shards none stands before
 * what it publishes for their sink. `unread`: outbox_internal.rescan_queue may name rows that stand anywhere. */
void low_watermark_publish(Moment now, bool unread);
