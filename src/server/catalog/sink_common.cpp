/*
 * sink_common.cpp: the precedence is: the sink's option, then the setting, then the kind's default.
 */
#include "server/catalog/sink_common.h"

#include "server/base/settings.h"

bool sink_common(const char *kind, const ob_option *options, size_t n, dispatch::SinkRules *rules,
                 SinkCommon *common) {
  ob_common given;
  ob_error error;

  memset(&given, 0, sizeof(given));
  if (!ob_kind(kind)->common_options(kind, options, n, &given, &error))
    return false;
  rules->ordered = given.ordered;
  rules->dead_letters_block = given.ordered && given.block_on_dead_letter;
  rules->max_attempts = given.max_attempts > 0     ? given.max_attempts
                        : setting_max_attempts > 0 ? setting_max_attempts
                                                   : given.default_max_attempts;
  common->retention_ms = given.retention_ms >= 0 ? given.retention_ms : (int64)setting_retention * 1000;
  const char *retry = given.retry                                 ? given.retry
                      : setting_retry && setting_retry[0] != '\0' ? setting_retry
                                                                  : given.default_retry;
  strlcpy(common->retry, retry, sizeof(common->retry));
  common->disable_after_ms = given.disable_after_ms;
  common->max_payload = given.max_payload;
  common->longest_answer_ms = given.longest_answer_ms;
  return true;
}
