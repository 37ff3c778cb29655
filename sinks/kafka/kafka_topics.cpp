/*
 * kafka_topics.cpp: events of a missing topic are written back one by one, due 1 ms apart, so at most 1,000 of them
 * per second are claimed and rewritten, however many wait. A topic failure neither stops nor purges the producer:
 * librdkafka fails all messages of the topic by itself, and a purge would leave gaps in the sequence numbers of
 * healthy partitions. `topic.metadata.propagation.max.ms` is 2 s instead of 30 s, because a missing topic's events
 * fill the queue for that time.
 */
#include "kafka_topics.h"

#include <algorithm>

namespace outbox {

KafkaTopics::Topic *KafkaTopics::find(const std::string &name) {
  auto at = topics_.find(name);
  return at == topics_.end() ? nullptr : &at->second;
}

KafkaTopics::Topic &KafkaTopics::enter(const std::string &name, Time now) {
  if (topics_.empty())
    look_at_ = now + forget_after;
  Topic &topic = topics_[name];
  topic.asked = now;
  return topic;
}

KafkaTopics::Answer KafkaTopics::ask(Topic &topic, Time now) {
  topic.asked = now;
  if (!topic.reason.empty())
    return topic.probe != 0 || now < topic.until ? Answer::Defer : Answer::Send;
  if (!topic.careful() || topic.in_flight < topic.max_in_flight)
    return Answer::Send;
  return now - topic.sent_at < longest_silence ? Answer::Queue : Answer::Defer;
}

void KafkaTopics::submitted(const std::string &name, uint64_t event, size_t size, Time now) {
  auto at = topics_.find(name);
  if (at == topics_.end())
    return;
  Topic &topic = at->second;
  bool with_care = topic.careful();
  in_flight_.insert_or_assign(event, InFlight{at, size, with_care});
  if (!topic.reason.empty())
    topic.probe = event;
  if (with_care) {
    topic.sent_alone = topic.in_flight == 0 && topic.max_in_flight == 1 ? event : 0;
    topic.careful_left -= topic.careful_left > 0;
    topic.in_flight++;
    topic.sent_at = now;
  }
}

bool KafkaTopics::take(uint64_t event, InFlight &taken) {
  auto at = in_flight_.find(event);
  if (at == in_flight_.end())
    return false;
  taken = at->second;
  in_flight_.erase(at);
  Topic &topic = taken.topic->second;
  if (topic.probe == event)
    topic.probe = 0;
  if (topic.sent_alone == event)
    topic.sent_alone = 0;
  topic.in_flight -= taken.with_care;
  return true;
}

KafkaTopics::Duration KafkaTopics::failed(const std::string &name, uint64_t event, std::string reason, Time now) {
  Topic &topic = enter(name, now);
  bool paused = !topic.reason.empty();
  bool probe = paused && topic.probe == event;
  InFlight taken;

  take(event, taken);
  topic.reason = std::move(reason);
  if (paused && !probe)
    return wait(topic, now);
  topic.pause = paused ? std::min(topic.pause * 2, longest_pause) : first_pause;
  topic.until = now + topic.pause;
  return topic.pause; /* this event will be the next probe */
}

KafkaTopics::Duration KafkaTopics::wait(const Topic &topic, Time now) {
  return wait(topic.reason.empty() ? longest_pause : topic.pause, now);
}

KafkaTopics::Duration KafkaTopics::wait(Duration least, Time now) const {
  *last_wait_ = std::max(now + least, *last_wait_ + wait_spacing);
  return std::chrono::ceil<Duration>(*last_wait_ - now);
}

size_t KafkaTopics::refused(const std::string &name, uint64_t event, Time now) {
  Topic &topic = enter(name, now);
  bool alone = topic.sent_alone == event;
  InFlight taken;

  topic.max_in_flight = 1;
  topic.stored = 0;
  bool known = take(event, taken);
  if (!alone || !known) {
    topic.careful_left++;
    return 0;
  }
  forget_if_healthy(taken.topic);
  return taken.size;
}

bool KafkaTopics::acknowledged(uint64_t event, std::string &name) {
  InFlight taken;

  if (auto at = in_flight_.find(event); at != in_flight_.end() && !at->second.topic->second.reason.empty())
    name = at->second.topic->first;
  if (!take(event, taken))
    return false;
  Topic &topic = taken.topic->second;
  bool over = !topic.reason.empty();
  topic.reason.clear();
  topic.stored += taken.with_care;
  topic.max_in_flight += topic.stored > trusted_after;
  forget_if_healthy(taken.topic);
  return over;
}

bool KafkaTopics::end_pause(const std::string &name) {
  auto at = topics_.find(name);
  if (at == topics_.end() || at->second.reason.empty() || at->second.probe != 0)
    return false;
  at->second.reason.clear();
  forget_if_healthy(at);
  return true;
}

void KafkaTopics::ended(uint64_t event) {
  if (InFlight taken; take(event, taken)) {
    taken.topic->second.careful_left += taken.with_care; /* the event will be submitted again */
    forget_if_healthy(taken.topic);
  }
}

void KafkaTopics::forget_in_flight() {
  in_flight_.clear();
  for (auto &[name, topic] : topics_) {
    topic.careful_left += topic.in_flight;
    topic.sent_alone = topic.probe = topic.in_flight = 0;
  }
}

void KafkaTopics::forget_if_healthy(Topics::iterator at) {
  const Topic &topic = at->second;
  if (topic.reason.empty() && topic.probe == 0 && !topic.careful())
    topics_.erase(at);
}

bool KafkaTopics::forget_unused(Time now) {
  bool paused = false;

  if (topics_.empty() || now < look_at_)
    return false;
  look_at_ = Time::max();
  for (auto at = topics_.begin(); at != topics_.end();) {
    const Topic &topic = at->second;
    bool in_flight = topic.probe != 0 || topic.in_flight != 0;
    if (!in_flight && topic.asked + forget_after <= now) {
      paused |= !topic.reason.empty();
      at = topics_.erase(at);
      continue;
    }
    look_at_ = std::min(look_at_, (in_flight ? now : topic.asked) + forget_after);
    ++at;
  }
  return paused;
}

void KafkaTopics::add_paused(Paused &paused) const {
  for (const auto &[name, topic] : topics_)
    if (!topic.reason.empty())
      paused.emplace(name, topic.reason);
}

std::string KafkaTopics::summary(const Paused &paused) {
  if (paused.empty())
    return {};
  const std::string &reason = paused.begin()->second;
  return paused.size() == 1   ? reason
         : paused.size() == 2 ? reason + "; 1 more topic is paused"
                              : reason + "; " + std::to_string(paused.size() - 1) + " more topics are paused";
}

}  // namespace outbox
