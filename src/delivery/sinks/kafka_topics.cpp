#include "kafka_topics.h"

#include <algorithm>

namespace outbox {

KafkaTopics::Topic *KafkaTopics::find(const std::string &name) {
  auto at = topics_.find(name);
  return at == topics_.end() ? nullptr : &at->second;
}

KafkaTopics::Answer KafkaTopics::ask(Topic &topic, size_t size, Time now) {
  if (!topic.reason.empty())
    return topic.probe != 0 || now < topic.until ? Answer::Wait : Answer::Go;
  if (topic.limit == 0)
    return Answer::Go;
  if (now >= topic.raise_at) {
    topic.limit *= 2;
    topic.raise_at = now + topic.raise;
    topic.searching = false;
  }
  return topic.under_way == 0 || topic.under_way + size <= topic.limit ? Answer::Go : Answer::Full;
}

void KafkaTopics::submitted(Topic &topic, uint64_t event, size_t size) {
  if (!topic.reason.empty())
    topic.probe = event;
  bool alone = topic.limit != 0 && topic.under_way == 0; /* all was back when it became narrow */
  if (!alone)
    for (auto &[other, each] : under_way_)
      if (each.topic == &topic)
        each.alone = false;
  topic.under_way += size;
  under_way_[event] = {&topic, size, alone};
}

KafkaTopics::UnderWay KafkaTopics::take(uint64_t event) {
  auto at = under_way_.find(event);
  if (at == under_way_.end())
    return {nullptr, 0, false};
  UnderWay taken = at->second;
  under_way_.erase(at);
  taken.topic->under_way -= taken.size;
  if (taken.topic->probe == event)
    taken.topic->probe = 0;
  return taken;
}

KafkaTopics::Duration KafkaTopics::failed(const std::string &name, uint64_t event, std::string reason, Time now) {
  Topic &topic = topics_[name];
  bool paused = !topic.reason.empty();
  bool probe = paused && topic.probe == event;

  take(event);
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
  Topic &topic = topics_[name];
  UnderWay taken = take(event);

  if (taken.alone) {
    if (topic.searching) { /* found: the rest of its batches were innocent */
      topic.limit = topic.limit_was;
      topic.searching = false;
      n_narrow_ -= topic.limit == 0;
    }
    forget_if_well(&topic);
    return taken.size;
  }
  if (topic.halved)
    return 0; /* another batch of the same moment */
  topic.halved = true;
  if (!topic.searching) {
    topic.searching = true;
    topic.limit_was = topic.limit;
    if (topic.limit != 0)
      topic.raise = std::min(topic.raise * 2, longest_raise);
  }
  n_narrow_ += topic.limit == 0;
  topic.limit = topic.limit == 0 ? widest / 2 : std::max<size_t>(topic.limit / 2, 1);
  topic.raise_at = now + topic.raise;
  return 0;
}

void KafkaTopics::drained() {
  for (auto &[name, topic] : topics_)
    topic.halved = false;
}

bool KafkaTopics::acknowledged(uint64_t event, std::string &name) {
  Topic *topic = take(event).topic;
  if (!topic)
    return false;
  bool over = !topic->reason.empty();
  if (over) {
    for (const auto &[each, entry] : topics_)
      if (&entry == topic)
        name = each;
    topic->reason.clear();
    n_paused_--;
  }
  forget_if_well(topic);
  return over;
}

void KafkaTopics::ended(uint64_t event) {
  if (Topic *topic = take(event).topic)
    forget_if_well(topic);
}

void KafkaTopics::forget_under_way() {
  under_way_.clear();
  for (auto &[name, topic] : topics_)
    topic.under_way = topic.probe = 0;
}

void KafkaTopics::forget_if_well(Topic *topic) {
  if (topic->limit >= widest && topic->under_way == 0) {
    topic->limit = 0;
    n_narrow_--;
  }
  if (topic->under_way > 0 || !topic->reason.empty() || topic->limit != 0)
    return;
  for (auto at = topics_.begin(); at != topics_.end(); ++at)
    if (&at->second == topic) {
      topics_.erase(at);
      return;
    }
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
