/* judge.h: decides about one row of a round. */
#pragma once

#include "server/claim/claim_round.h"
#include "server/event/event_row.h"
#include "server/sinks/worker_sinks.h"

/* Decides about one row, and takes it into its sink's batch or marks it as held. `*sink` is its sink, or NULL. */
Verdict judge(const EventRow *row, Stream stream, WorkerSink **sink);
