/* sink_common.h: the options that every kind of sink has, with what the settings and the kind say where they are
 * silent. */
#pragma once

#include "server/base/server.h"

#include "delivery/delivery.h"

typedef struct SinkCommon {
  bool ordered;
  bool hold; /* a dead letter's key waits for a user */
  int max_attempts;
  int64 retention_ms;
  char retry[256];
  int64 disable_after_ms; /* 0 = never */
} SinkCommon;

/* False when the options do not parse (written by another library): then nothing is filled in. */
bool sink_common(const char *kind, const ob_option *options, size_t n, SinkCommon *common);
