/*
 * kafka_topics.cpp: events of a missing topic are written back one by one, due a millisecond apart, so at most
 * 1,000 of them per second are claimed and written again, however many wait. A topic failure neither stops nor
 * purges the producer: librdkafka fails all messages of the topic, and a purge would leave gaps in the sequence
 * numbers of healthy partitions. `topic.metadata.propagation.max.ms` is 2 s and not 30, because a missing topic's
 * events fill the queue for that time.
 */
#include "delivery/sinks/kafka/kafka_topics.h"

#include <algorithm>

namespace outbox {

KafkaTopics::Topic *KafkaTopics::find(const std::string &name) {
  auto at = topics_.find(name);
  return at == topics_.end() ? nullptr : &at->second;
}

KafkaTopics::Topic &KafkaTopics::enter(const std::string &name, Time now) {
  if (topics_.empty())
    look_at_ = now + forgotten_after;
  Topic &topic = topics_[name];
  topic.asked = now;
  return topic;
}

KafkaTopics::Answer KafkaTopics::ask(Topic &topic, Time now) {
  topic.asked = now;
  if (!topic.reason.empty())
    return topic.probe != 0 || now < topic.until ? Answer::Wait : Answer::Go;
  return topic.careful() && topic.under_way >= topic.together ? Answer::Turn : Answer::Go;
}

void KafkaTopics::submitted(const std::string &name, uint64_t event, size_t size) {
  auto at = topics_.find(name);
  if (at == topics_.end())
    return;
  Topic &topic = at->second;
  if (!topic.reason.empty())
    topic.probe = event;
  bool with_care = topic.careful();
  if (with_care) {
    topic.single = topic.under_way == 0 && topic.together == 1 ? event : 0;
    topic.singly -= topic.singly > 0;
    topic.under_way++;
  }
  under_way_.insert_or_assign(event, UnderWay{at, size, with_care});
}

bool KafkaTopics::take(uint64_t event, UnderWay &taken) {
  auto at = under_way_.find(event);
  if (at == under_way_.end())
    return false;
  taken = at->second;
  under_way_.erase(at);
  Topic &topic = taken.topic->second;
  if (topic.probe == event)
    topic.probe = 0;
  if (topic.single == event)
    topic.single = 0;
  topic.under_way -= taken.with_care;
  return true;
}

KafkaTopics::Duration KafkaTopics::failed(const std::string &name, uint64_t event, std::string reason, Time now) {
  Topic &topic = enter(name, now);
  bool paused = !topic.reason.empty();
  bool probe = paused && topic.probe == event;
  UnderWay taken;

  take(event, taken);
  topic.reason = std::move(reason);
  if (paused && !probe)
    return wait(topic, now);
  n_paused_ += !paused;
  topic.pause = paused ? std::min(topic.pause * 2, longest_pause) : first_pause;
  topic.until = now + topic.pause;
  return topic.pause; /* it will be the one that tries again */
}

KafkaTopics::Duration KafkaTopics::wait(const Topic &topic, Time now) {
  last_wait_ = std::max(now + topic.pause, last_wait_ + wait_spacing);
  return std::chrono::ceil<Duration>(last_wait_ - now);
}

size_t KafkaTopics::refused(const std::string &name, uint64_t event, Time now) {
  Topic &topic = enter(name, now);
  bool alone = topic.single == event;
  UnderWay taken;

  topic.together = 1;
  topic.stored = 0;
  bool known = take(event, taken);
  if (!alone || !known) {
    topic.singly++;
    return 0;
  }
  forget_if_well(taken.topic);
  return taken.size;
}

bool KafkaTopics::acknowledged(uint64_t event, std::string &name) {
  UnderWay taken;

  if (!take(event, taken))
    return false;
  Topic &topic = taken.topic->second;
  bool over = !topic.reason.empty();
  if (over) {
    name = taken.topic->first;
    topic.reason.clear();
    n_paused_--;
  }
  topic.stored += taken.with_care;
  topic.together += topic.stored > trusted_after;
  forget_if_well(taken.topic);
  return over;
}

void KafkaTopics::ended(uint64_t event) {
  if (UnderWay taken; take(event, taken)) {
    taken.topic->second.singly += taken.with_care; /* it comes again */
    forget_if_well(taken.topic);
  }
}

void KafkaTopics::forget_under_way() {
  under_way_.clear();
  for (auto &[name, topic] : topics_)
    topic.single = topic.probe = topic.under_way = 0;
}

void KafkaTopics::forget_if_well(Topics::iterator at) {
  const Topic &topic = at->second;
  if (topic.reason.empty() && topic.probe == 0 && !topic.careful())
    topics_.erase(at);
}

bool KafkaTopics::forget_unasked(Time now) {
  bool paused = false;

  if (topics_.empty() || now < look_at_)
    return false;
  look_at_ = Time::max();
  for (auto at = topics_.begin(); at != topics_.end();) {
    const Topic &topic = at->second;
    bool under_way = topic.probe != 0 || topic.under_way != 0;
    if (!under_way && topic.asked + forgotten_after <= now) {
      paused |= !topic.reason.empty();
      n_paused_ -= !topic.reason.empty();
      at = topics_.erase(at);
      continue;
    }
    look_at_ = std::min(look_at_, (under_way ? now : topic.asked) + forgotten_after);
    ++at;
  }
  return paused;
}

std::string KafkaTopics::summary() const {
  for (const auto &[name, topic] : topics_)
    if (!topic.reason.empty())
      return n_paused_ == 1   ? topic.reason
             : n_paused_ == 2 ? topic.reason + "; 1 more topic is paused"
                              : topic.reason + "; " + std::to_string(n_paused_ - 1) + " more topics are paused";
  return {};
}

}  // namespace outbox
