/*
 * kafka_topics.h: the topics of a Kafka sink that have a problem. A healthy topic has no entry, nor has one without
 * events for 10 s. A topic can be in either or both of two states:
 *
 * Paused (`reason` is set): the topic does not exist or cannot be written. Its events are deferred and wait in the
 * table. After a pause of 0.5 to 5 s one of them, the probe, is sent. Deferred events become due 1 ms apart, so
 * that a long backlog is not rewritten again and again.
 *
 * Careful (careful() is true): a broker refuses a batch as a whole, whichever of its events is to blame. So the
 * topic's events are sent one at a time, until as many were sent as the batch had: an event that is refused alone
 * is to blame. After 16 stored events in a row more and more are sent at a time, because there may be thousands of
 * them and a single bad one. If a broker does not answer for `longest_silence` meanwhile, the topic's events are
 * deferred too: in the sink they would take the room of other topics' events.
 *
 * Time is a parameter. Used by one thread.
 */
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

namespace outbox {

class KafkaTopics {
public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::milliseconds;

  static constexpr Duration first_pause{500};
  static constexpr Duration longest_pause{5000};
  /* The distance between the due times of two deferred events, of all topics together. */
  static constexpr Duration wait_spacing{1};
  /* While a topic has events, at least one of them is tried within the longest pause. After this time without one,
   * the entry is dropped. */
  static constexpr Duration forget_after{2 * longest_pause};
  /* After this many stored events in a row, more than one is sent at a time. */
  static constexpr size_t trusted_after = 16;
  static constexpr std::chrono::seconds longest_silence{5};

  /* When the latest deferred event of a sink becomes due: its lanes share it, so that the distance holds for all. */
  using LastWait = std::shared_ptr<Time>;
  explicit KafkaTopics(LastWait last_wait = std::make_shared<Time>()) : last_wait_(std::move(last_wait)) {}

  struct Topic {
    std::string reason; /* why it is paused; empty = not paused */
    Time until{};
    Duration pause{0};
    uint64_t probe = 0;       /* the event that was sent to test the topic; 0 = none */
    size_t careful_left = 0;  /* events still to be sent carefully */
    size_t max_in_flight = 1; /* careful events in flight at a time */
    size_t stored = 0;        /* careful events stored in a row */
    size_t in_flight = 0;     /* careful events in flight */
    uint64_t sent_alone = 0;  /* the only careful event in flight, if max_in_flight is 1; 0 = none */
    Time sent_at{};           /* when the last careful event was sent */
    Time asked{};             /* when an event for this topic was last submitted */

    bool careful() const { return careful_left + in_flight > 0; }
  };

  bool empty() const { return topics_.empty(); }
  /* Returns null for a healthy topic. */
  Topic *find(const std::string &name);
  const Topic *find(const std::string &name) const { return const_cast<KafkaTopics *>(this)->find(name); }

  /* Whether an event for the topic may be sent now. Defer: the topic is paused, or does not answer. Queue: wait for
   * an event in flight to end. */
  enum class Answer { Send, Defer, Queue };
  Answer ask(Topic &topic, Time now);
  /* The event was handed to librdkafka. */
  void submitted(const std::string &name, uint64_t event, size_t size, Time now);

  /* The event failed because of its topic. Pauses the topic and returns the time after which the event may be sent
   * again. */
  Duration failed(const std::string &name, uint64_t event, std::string reason, Time now);
  /* The same for an event that was not sent because ask() answered Defer. */
  Duration wait(const Topic &topic, Time now);
  /* The same for an event that was not sent for a reason that is not its topic's. */
  Duration wait(Duration least, Time now) const;

  /* The event's batch was refused. Returns the event's size if it was sent alone and so is to blame; otherwise 0. */
  size_t refused(const std::string &name, uint64_t event, Time now);

  /* The event was acknowledged. Returns true if that ends a pause; `name` is then the topic. */
  bool acknowledged(uint64_t event, std::string &name);
  /* The topic can be written, as an event of another lane has shown. Returns true if that ends a pause; the probe
   * ends it if there is one. */
  bool end_pause(const std::string &name);
  /* The event ended in another way, or was never sent. */
  void ended(uint64_t event);
  /* The same for all events in flight: they will be submitted again. */
  void forget_in_flight();

  /* Drops topics without events for `forget_after`. Returns true if one of them was paused. */
  bool forget_unused(Time now);
  /* When to call forget_unused() again; Time::max() = never. */
  Time look_at() const { return topics_.empty() ? Time::max() : look_at_; }

  /* Adds the paused topics, each with its problem. */
  using Paused = std::map<std::string, std::string>;
  void add_paused(Paused &paused) const;
  /* The problem of paused topics in one text; empty if there is none. */
  static std::string summary(const Paused &paused);

private:
  using Topics = std::map<std::string, Topic, std::less<>>; /* map nodes do not move */
  struct InFlight {
    Topics::iterator topic;
    size_t size;
    bool with_care;
  };
  Topic &enter(const std::string &name, Time now);
  bool take(uint64_t event, InFlight &taken);
  void forget_if_healthy(Topics::iterator topic);

  Topics topics_;
  std::unordered_map<uint64_t, InFlight> in_flight_; /* probes and careful events, by opaque */
  const LastWait last_wait_;
  Time look_at_{};
};

}  // namespace outbox
