/*
 * latency.cpp: 67 buckets, ten to a decade, found by a search over a table. Percentiles and the 16 published
 * buckets come from the same counters: each published edge is one of theirs.
 */
#include "server/shmem/latency.h"

/* Upper edges in microseconds. They include all published edges. */
static const int64 EDGES[LATENCY_BUCKETS - 1] = {
    100,       125,       160,       200,       250,       300,      400,      500,      600,      800,
    1000,      1250,      1600,      2000,      2500,      3000,     4000,     5000,     6000,     8000,
    10000,     12500,     16000,     20000,     25000,     30000,    40000,    50000,    60000,    80000,
    100000,    125000,    160000,    200000,    250000,    300000,   400000,   500000,   600000,   800000,
    1000000,   1250000,   1600000,   2000000,   2500000,   3000000,  4000000,  5000000,  6000000,  8000000,
    10000000,  12500000,  16000000,  20000000,  25000000,  30000000, 40000000, 50000000, 60000000, 80000000,
    100000000, 125000000, 160000000, 200000000, 250000000, 300000000};

const double latency_published_edges[LATENCY_PUBLISHED] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                                           0.5,   1,      2.5,   5,    10,    30,   60,  300};

/* The first bucket whose edge is at least this. It runs for each delivered event, so the number of steps is fixed. */
static int bucket_of(int64 microseconds) {
  int at = 0;

  for (int n = LATENCY_BUCKETS - 1; n > 0;) {
    int half = n / 2;
    bool above = EDGES[at + half] < microseconds;
    at = above ? at + half + 1 : at;
    n = above ? n - half - 1 : half;
  }
  return at;
}

void latency_add(Latency *latency, int64 microseconds) {
  latency->counts[bucket_of(microseconds)]++;
  latency->sum_us += Max(microseconds, 0);
}

uint64 latency_count(const Latency *latency) {
  uint64 total = 0;

  for (int i = 0; i < LATENCY_BUCKETS; i++)
    total += latency->counts[i];
  return total;
}

bool latency_quantile(const Latency *latency, double share, double *ms) {
  uint64 total = latency_count(latency), below = 0;

  for (int i = 0; i < LATENCY_BUCKETS && total > 0; i++) {
    below += latency->counts[i];
    if (below >= share * total) {
      *ms = EDGES[Min(i, LATENCY_BUCKETS - 2)] / 1000.0;
      return true;
    }
  }
  return false;
}

void latency_publish(const Latency *latency, uint64 *cumulative) {
  uint64 below = 0;
  int bucket = 0;

  for (int i = 0; i < LATENCY_PUBLISHED; i++) {
    for (; bucket < LATENCY_BUCKETS - 1 && EDGES[bucket] <= latency_published_edges[i] * 1000000 + 0.5; bucket++)
      below += latency->counts[bucket];
    cumulative[i] = below;
  }
}
