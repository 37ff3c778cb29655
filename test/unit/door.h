/* door.h: shared by the tests that use the delivery API: events that own their texts, option lists, waiting. */
#pragma once

#include <algorithm>
#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "border.h"
#include "patience.h"

namespace door {

using OptionList = std::vector<ob_option>;

inline ob_text text(const std::string &from) {
  return {from.data(), from.size()};
}
constexpr ob_text null_text{nullptr, 0};

/* An option that is refused, and the rest of the error; a null text is not compared. */
struct Refusal {
  ob_option option;
  const char *detail = "", *hint = "";
};

/* Each of these options is refused with this message. In the texts, $name and $value stand for those of the option.
 * No text contains the secret "hush". */
inline void expect_refused(const char *kind, ob_scope scope, const OptionList &besides, ob_error_kind expected,
                           const char *message, const std::vector<Refusal> &refusals) {
  for (const Refusal &each : refusals) {
    SCOPED_TRACE(std::string(each.option.name) + " = " + each.option.value);
    OptionList options = besides;
    options.push_back(each.option);
    ob_error error;
    ASSERT_FALSE(border::check_options(kind, scope, options, false, &error));
    EXPECT_EQ(error.kind, expected) << error.message;
    EXPECT_STREQ(error.subject, each.option.name);
    for (auto &[said, text] : {std::pair<std::string, const char *>(error.message, message),
                               {error.detail, each.detail},
                               {error.hint, each.hint}}) {
      EXPECT_EQ(said.find("hush"), std::string::npos) << said;
      std::string whole = text ? text : said;
      for (auto &[sign, meant] : {std::pair("$name", each.option.name), {"$value", each.option.value}})
        for (size_t at; (at = whole.find(sign)) != std::string::npos;)
          whole.replace(at, strlen(sign), meant);
      EXPECT_EQ(said, whole);
    }
  }
}

/* An event that owns its texts. Must not be moved after raw() was called. */
struct Event {
  uint64_t ticket = 1;
  std::string aggregate_type = "Order", aggregate_id = "7", event_type = "order.created", key = "7";
  std::string payload = R"({"total": 12.5})";
  int64_t created_at_us = 1614265330000123;
  std::string content_type; /* empty: NULL */
  int64_t seq = 0;
  bool has_key = true, has_payload = true, payload_is_bytes = false, has_seq = false, binary_headers = false;
  std::vector<std::pair<std::string, std::string>> headers;
  std::vector<ob_header> raw_headers;

  ob_event raw() {
    raw_headers.clear();
    for (auto &[name, value] : headers)
      raw_headers.push_back({text(name), text(value), binary_headers});
    ob_event event{};
    event.ticket = ticket;
    event.key_hash = has_key ? std::hash<std::string>()(key) | 1 : 0;
    event.position = static_cast<int64_t>(ticket);
    event.created_at_us = created_at_us;
    const uint8_t id[16] = {0x01, 0x7f, 0x22, 0xe2, 0x79, 0xb0, 0x7c, 0xc3,
                            0x98, 0xc4, 0xdc, 0x0c, 0x0c, 0x07, 0x39, 0x8f};
    std::copy(std::begin(id), std::end(id), event.id);
    event.aggregate_type = text(aggregate_type);
    event.aggregate_id = text(aggregate_id);
    event.event_type = text(event_type);
    event.key = has_key ? text(key) : null_text;
    event.payload = has_payload ? text(payload) : null_text;
    event.payload_is_bytes = payload_is_bytes;
    event.content_type = content_type.empty() ? null_text : text(content_type);
    event.seq = seq;
    event.has_seq = has_seq;
    event.attempt = 1;
    event.headers = raw_headers.data();
    event.n_headers = raw_headers.size();
    return event;
  }
};
constexpr const char *event_id = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f";

struct Done {
  uint64_t ticket;
  ob_outcome outcome;
  std::string error;
};

/* An engine for one test, with all its completions and log lines. */
class Engine {
public:
  Engine() : engine_(ob_engines_open(&error)) { EXPECT_NE(engine_, nullptr) << error.message; }
  ~Engine() {
    if (engine_) {
      EXPECT_TRUE(ob_engines_close(engine_, 60'000)) << "a thread hangs";
    }
  }

  ob_sink *open(const char *kind, const OptionList &options, const OptionList &mapping = {},
                const char *name = "main") {
    return border::sink_open(engine_, name, kind, options, mapping, &error);
  }
  bool submit(ob_sink *sink, Event &event) {
    ob_event raw = event.raw();
    return sink->kind->submit(sink, &raw, 1) == 1;
  }

  /* Takes what is available, without waiting. */
  void collect() {
    ob_completion batch[64];
    while (size_t n = ob_collect(engine_, batch, std::size(batch)))
      for (size_t i = 0; i < n; i++)
        done.push_back({batch[i].ticket, batch[i].outcome, batch[i].error ? batch[i].error : ""});
    ob_log_line line;
    while (ob_next_log(engine_, &line))
      log += std::string(line.sink) + ": " + line.text + "\n";
  }

  /* Waits on the engine's descriptor until the condition holds; `tick` limits a wait for conditions that depend on
   * time. */
  bool until(const std::function<bool()> &condition, int timeout_ms = 60'000, int tick_ms = 10'000) {
    auto end = patience_ends(std::chrono::milliseconds(timeout_ms));
    for (;;) {
      collect();
      if (condition())
        return true;
      auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
      if (left.count() <= 0)
        return false;
      wait(static_cast<int>(std::min<int64_t>(left.count(), tick_ms)));
    }
  }
  bool wait(int timeout_ms) {
    pollfd fd{ob_engines_fd(engine_), POLLIN, 0};
    return poll(&fd, 1, timeout_ms) == 1;
  }

  static ob_sink_status status(ob_sink *sink) {
    ob_sink_status status;
    sink->kind->sink_get_status(sink, &status);
    return status;
  }

  ob_engines *raw() { return engine_; }
  ob_engines *release() { return std::exchange(engine_, nullptr); }

  ob_error error{};
  std::vector<Done> done;
  std::string log;

private:
  ob_engines *engine_;
};

}  // namespace door
