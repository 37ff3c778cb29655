/* kafka_log.h: parses a line of librdkafka's log, and finds those that say the same again. */
#pragma once

#include <librdkafka/rdkafka.h>

#include <chrono>
#include <map>
#include <string>
#include <string_view>

#include "kafka_diagnosis.h"
#include "kafka_properties.h"

namespace outbox {

/* Valid as long as the event that it was read from. */
struct KafkaLogLine {
  int level = 0;             /* syslog level */
  std::string_view facility; /* "FAIL" */
  std::string_view text;     /* "[thrd:host:9092/1]: host:9092/1: Connect to ... failed" */
  std::string_view message;  /* text without the thread's name */

  /* Returns false if the event is not a log line. */
  bool read(rd_kafka_event_t *event) {
    const char *facility_, *text_;
    if (rd_kafka_event_log(event, &facility_, &text_, &level) != 0)
      return false;
    facility = facility_;
    message = text = text_;
    constexpr std::string_view thread_end = "]: ";
    if (size_t at = text.find(thread_end); at != text.npos)
      message.remove_prefix(at + thread_end.size());
    leave_out_secret();
    return true;
  }

private:
  /* The property debug=conf logs the configuration, in version 2.8 with the value of sasl.oauthbearer.client.secret.
   */
  void leave_out_secret() {
    constexpr std::string_view is = " = ";
    size_t at = message.find(is);
    if (at == message.npos || !is_secret_kafka_property(message.substr(0, at)))
      return;
    size_t value = message.size() - at - is.size();
    message.remove_suffix(value);
    text.remove_suffix(value);
  }
};

/* All producers of a sink see the same outage, and each tells of it, once in 30 s. Used by one thread. */
class KafkaLogRepeats {
public:
  using Time = std::chrono::steady_clock::time_point;

  /* Whether the same text was told within that time. */
  bool is_repeat(std::string_view text, Time now) {
    constexpr std::chrono::seconds once_in{30};
    constexpr size_t plenty = 100; /* a limit, because texts name what brokers have said */
    std::erase_if(told_, [&](const auto &each) { return now - each.second >= once_in; });
    if (told_.size() >= plenty)
      told_.clear();
    return !told_.emplace(without_timing(text), now).second;
  }

private:
  std::map<std::string, Time> told_;
};

}  // namespace outbox
