/*
 * low_watermark.h: tells the views below which position they need not look for a sink's first row. Under an old
 * snapshot, and while a backlog drains, each index begins with many dead entries that cannot be removed yet: behind
 * 400,000 of them, outbox.sinks reads 2,500 pages in 0.05 s, and 27,600 pages in 0.24 s without the low watermark.
 */
#pragma once

#include "server/base/clock.h"

/* Between transactions, in each loop of the worker. Of the rows without available_at in this worker's shards, none
 * lies below the value that it publishes for their sink. `unread`: outbox_internal.rescan_queue may name rows at any
 * position. */
void low_watermark_publish(Moment now, bool unread);
