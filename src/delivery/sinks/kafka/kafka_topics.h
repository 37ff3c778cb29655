/*
 * kafka_topics.h: the topics of a Kafka sink that are in trouble, and what that means for their events. A healthy
 * topic is not in here, nor is one that no event has asked for in a while.
 *
 * Paused: the topic does not exist, or cannot be written. Its events wait in the table, and after a pause that grows
 * one of them tries. They are sent back to wait at a bounded rate, so that a long backlog is not written over and
 * over.
 *
 * Singly: a broker refuses a batch as a whole, whichever of its events is to blame. After that the topic's events go
 * one at a time, until as many as were refused are through: one that is refused alone is to blame. When some in a row
 * were stored, more and more go together again: there may be thousands, and one culprit.
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
  /* One of a topic's events asks within the longest pause: where none has for so long, there are none. */
  static constexpr Duration forgotten_after{2 * longest_pause};
  /* After so many single events in a row that were stored, more go together. */
  static constexpr size_t trusted_after = 16;

  struct Topic {
    std::string reason; /* why it is paused; empty: it is not */
    Time until{};
    Duration pause{0};
    uint64_t probe = 0;   /* the event that tries; 0 = none */
    size_t singly = 0;    /* so many events are still to go with care */
    size_t together = 1;  /* so many at a time */
    size_t stored = 0;    /* in a row */
    size_t under_way = 0; /* with care */
    uint64_t single = 0;  /* the one that is under way alone; 0 = none */
    Time asked{};         /* when an event was last to go there */

    bool careful() const { return singly + under_way > 0; }
  };

  bool empty() const { return topics_.empty(); }
  /* Null for a healthy one. */
  Topic *find(const std::string &name);

  /* May an event go to it now? Wait: it is paused. Turn: when the one before it has ended. */
  enum class Answer { Go, Wait, Turn };
  Answer ask(Topic &topic, Time now);
  /* It went. */
  void submitted(const std::string &name, uint64_t event, size_t size);

  /* The topic failed this event: it is paused, and the event may try again after the returned time. */
  Duration failed(const std::string &name, uint64_t event, std::string reason, Time now);
  /* Likewise for an event that did not even try. */
  Duration wait(const Topic &topic, Time now);

  /* The event was refused together with its batch. Its size, when it was alone and so is to blame; else 0. */
  size_t refused(const std::string &name, uint64_t event, Time now);

  /* The event was acknowledged. True when that ends a pause; then `name` is the topic's. */
  bool acknowledged(uint64_t event, std::string &name);
  /* It ended in another way, or was never sent. */
  void ended(uint64_t event);
  /* All at once. */
  void forget_under_way();

  /* Forgets those that no event asks for any more. True when a paused one was among them. */
  bool forget_unasked(Time now);
  /* When to look again; Time::max() = not by itself. */
  Time look_at() const { return topics_.empty() ? Time::max() : look_at_; }

  /* Why the sink is not all well: empty when no topic is paused. */
  std::string summary() const;

private:
  using Topics = std::map<std::string, Topic, std::less<>>; /* its nodes do not move */
  struct UnderWay {
    Topics::iterator topic;
    size_t size;
    bool with_care;
  };
  Topic &enter(const std::string &name, Time now);
  bool take(uint64_t event, UnderWay &taken);
  void forget_if_well(Topics::iterator topic);

  Topics topics_;
  std::unordered_map<uint64_t, UnderWay> under_way_; /* those that try, and those that go singly */
  Time last_wait_{}, look_at_{};
  size_t n_paused_ = 0;
};

}  // namespace outbox
