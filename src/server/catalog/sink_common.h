/* sink_common.h: the options that every kind of sink has, with defaults from the settings and the kind of sink. */
#pragma once

#include "server/base/server.h"

#include "delivery/delivery.h"
#include "dispatch/types.h"

typedef struct SinkCommon {
  int64 retention_ms;
  char retry[256];
  int64 disable_after_ms; /* 0 = never */
  size_t max_payload;
  int64 longest_answer_ms; /* as in ob_common */
} SinkCommon;

/* Returns false and sets nothing when the options do not parse, because another version of the library wrote them. */
bool sink_common(const char *kind, const ob_option *options, size_t n, dispatch::SinkRules *rules,
                 SinkCommon *common);
