/*
 * latency.h: counts how long events took until they were acknowledged, in fixed buckets, for percentiles and
 * Prometheus histograms.
 */
#pragma once

#include "server/base/server.h"

/* Ten per decade from 0.1 ms to 300 s, and one for longer times. */
#define LATENCY_BUCKETS 67

/* The counters of one sink, in shared memory. */
typedef struct Latency {
  uint64 counts[LATENCY_BUCKETS];
  int64 sum_us;
} Latency;

/* Counts one event. A negative time, after the clock was set back, counts as 0. */
void latency_add(Latency *latency, int64 microseconds);

uint64 latency_count(const Latency *latency);

/* Sets *ms to the upper edge, in milliseconds, of the bucket that contains the quantile `share` (0.0 to 1.0). Returns
 * false without data. */
bool latency_quantile(const Latency *latency, double share, double *ms);

/* The published buckets, with edges in seconds. There are fewer, because each is a time series per sink.
 * latency_publish() sets `cumulative[i]` to the number of events that took at most `latency_published_edges[i]`. */
#define LATENCY_PUBLISHED 16
extern const double latency_published_edges[LATENCY_PUBLISHED];
void latency_publish(const Latency *latency, uint64 *cumulative);
