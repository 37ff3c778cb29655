/*
 * kafka_topics.h: the topics of a Kafka sink that are in trouble, and what that means for their events. A healthy
 * topic is not in here.
 *
 * Paused: the topic does not exist, or may not be written. Its events wait in the table, and after a pause that grows
 * one of them tries. They are sent back to wait at a bounded rate, so that a long backlog is not written over and
 * over.
 *
 * Narrow: a broker refuses a batch as a whole, whoever of its events is to blame. After that fewer bytes of the topic
 * are under way at a time, half as many after each refusal, until the culprit is refused alone.
 *
 * A pure class: time comes in as a parameter. One thread.
 */
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>

namespace outbox {

class KafkaTopics {
public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::milliseconds;

  static constexpr Duration first_pause{500};
  static constexpr Duration longest_pause{5000};
  /* Between two events that wait for a topic, whichever it is. */
  static constexpr Duration wait_spacing{1};
  /* A batch is at most so large (librdkafka's batch.size): a wider topic is not limited. */
  static constexpr size_t widest = 1'000'000;
  /* How long a topic stays narrow before twice as much is tried; doubled when that was too much. */
  static constexpr Duration first_raise{10'000};
  static constexpr Duration longest_raise{600'000};

  struct Topic {
    /* paused */
    std::string reason; /* empty: it is not */
    Time until{};
    Duration pause{0};
    uint64_t probe = 0; /* the event that tries; 0 = none */
    /* narrow */
    size_t limit = 0;     /* bytes that may be under way; 0 = any */
    size_t limit_was = 0; /* before the refusals whose culprit is being looked for */
    bool searching = false;
    bool halved = false; /* since everything has come back */
    Time raise_at{};
    Duration raise{first_raise};
    size_t under_way = 0; /* bytes */
  };

  bool empty() const { return topics_.empty(); }
  bool any_paused() const { return n_paused_ > 0; }
  bool any_narrow() const { return n_narrow_ > 0; }
  /* Null for a healthy one. */
  Topic *find(const std::string &name);

  /* May an event of `size` bytes go to it now? Wait: it is paused. Full: when something of it has ended. */
  enum class Answer { Go, Wait, Full };
  Answer ask(Topic &topic, size_t size, Time now);
  /* It went. */
  void submitted(Topic &topic, uint64_t event, size_t size);

  /* The topic failed this event: it is paused, and the event may try again after the returned time. */
  Duration failed(const std::string &name, uint64_t event, std::string reason, Time now);
  /* Likewise for an event that did not even try. */
  Duration wait(const Topic &topic, Time now);

  /* The event was refused together with its batch. Its size, when it was the only one of its topic and so is to
   * blame; else 0. */
  size_t refused(const std::string &name, uint64_t event, Time now);
  /* Everything that was under way has come back. */
  void drained();

  /* The event was acknowledged. True when that ends a pause; then `name` is the topic's. */
  bool acknowledged(uint64_t event, std::string &name);
  /* It ended in another way, or was never sent. */
  void ended(uint64_t event);
  /* All at once. */
  void forget_under_way();

  /* Why the sink is not all well: empty when no topic is paused. */
  std::string summary() const;

private:
  struct UnderWay {
    Topic *topic;
    size_t size;
    bool alone; /* nothing else of its topic was under way at any moment since it went */
  };
  UnderWay take(uint64_t event);
  void forget_if_well(Topic *topic);

  std::map<std::string, Topic, std::less<>> topics_; /* its nodes do not move */
  std::unordered_map<uint64_t, UnderWay> under_way_;
  Time last_wait_{};
  size_t n_paused_ = 0, n_narrow_ = 0;
};

}  // namespace outbox
