/* kafka_log.h: a line of librdkafka's log. */
#pragma once

#include <librdkafka/rdkafka.h>

#include <string_view>

#include "delivery/sinks/kafka/kafka_properties.h"

namespace outbox {

/* Valid as long as its event is. */
struct KafkaLogLine {
  int level = 0;             /* syslog's */
  std::string_view facility; /* "FAIL" */
  std::string_view text;     /* "[thrd:host:9092/1]: host:9092/1: Connect to ... failed" */
  std::string_view said;     /* without the thread */

  /* False when the event is no line. */
  bool read(rd_kafka_event_t *event) {
    const char *facility_, *text_;
    if (rd_kafka_event_log(event, &facility_, &text_, &level) != 0)
      return false;
    facility = facility_;
    said = text = text_;
    constexpr std::string_view thread_end = "]: ";
    if (size_t at = text.find(thread_end); at != text.npos)
      said.remove_prefix(at + thread_end.size());
    leave_out_secret();
    return true;
  }

private:
  /* "debug" = "conf" writes the configuration down, in 2.8 with sasl.oauthbearer.client.secret as it is. */
  void leave_out_secret() {
    constexpr std::string_view is = " = ";
    size_t at = said.find(is);
    if (at == said.npos || !is_secret_kafka_property(said.substr(0, at)))
      return;
    size_t value = said.size() - at - is.size();
    said.remove_suffix(value);
    text.remove_suffix(value);
  }
};

}  // namespace outbox
