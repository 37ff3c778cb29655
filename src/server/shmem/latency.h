/*
 * latency.h: how long events took until they were acknowledged, counted in fixed buckets: what percentiles and
 * Prometheus histograms are made of.
 */
#pragma once

#include "server/base/server.h"

/* Ten to a decade from 0.1 ms to 300 s, and one for what took longer. */
#define LATENCY_BUCKETS 67

/* Of one sink. Counters only: it lives in shared memory. */
typedef struct Latency {
  uint64 counts[LATENCY_BUCKETS];
  int64 sum_us;
} Latency;

/* Counts one more; a negative time (a clock that was put back) counts as none. */
void latency_add(Latency *latency, int64 microseconds);

uint64 latency_count(const Latency *latency);

/* The upper edge of the bucket that holds the share, in milliseconds. False without data. */
bool latency_quantile(const Latency *latency, double share, double *ms);

/* The buckets that are published, edges in seconds: coarser, since each is a series per sink. `cumulative[i]`: how
 * many took `edges[i]` at most. */
#define LATENCY_PUBLISHED 16
extern const double latency_published_edges[LATENCY_PUBLISHED];
void latency_publish(const Latency *latency, uint64 *cumulative);
