/*
 * kafka_failures.cpp: what it means when an event, a topic, a broker or all of them fail.
 * A batch that a broker refused ends as returned, without a write to its rows. A message for a partition that does
 * not exist fails while librdkafka holds its topic's locks, so what is queued is then purged by the sink's next
 * poll and not by the interceptor.
 */
#include "delivery/sinks/kafka/kafka_errors.h"
#include "delivery/sinks/kafka/kafka_sink.h"

namespace outbox {

std::string KafkaSink::explain(rd_kafka_resp_err_t error, const char *text, const std::string &topic,
                               int32_t partition) const {
  std::string all = std::string(text) + ": topic \"" + topic + "\"";
  if (partition >= 0)
    all += ", partition " + std::to_string(partition);
  if (kafka_outcome(error) == Outcome::SinkDown && !last_error_.empty())
    all += "; " + last_error_;
  return all;
}

std::string about_topic(const std::string &topic) {
  return "topic \"" + topic + "\" ";
}

std::string KafkaSink::why_not(rd_kafka_resp_err_t error, const std::string &topic) const {
  if (!is_topic_failure(error))
    return about_topic(topic) + "cannot be written now: " + rd_kafka_err2str(error);
  if (error != RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED)
    return about_topic(topic) + "does not exist: create it, or let the brokers create topics";
  std::string user = config_->user();
  return about_topic(topic) + "may not be written: grant WRITE on it to " +
         (user.empty() ? "the sink's principal" : "\"User:" + user + "\"");
}

/* Nothing is wrong with the event: it waits in the table until the topic is there. */
Completion KafkaSink::topic_failed(const KafkaSlots::Slot &slot, uint64_t opaque, rd_kafka_resp_err_t error,
                                   const std::string &topic) {
  std::string reason = why_not(error, topic);
  KafkaTopics::Topic *known = topics_.find(topic);
  if (!known || known->reason != reason) {
    reporter_->log(OB_LOG_WARNING, reason + "; its events wait");
    topics_changed_ = true;
  }
  auto delay = topics_.failed(topic, opaque, reason, std::chrono::steady_clock::now());
  return {slot.ticket, slot.key_hash, Outcome::Deferred, delay.count(), std::move(reason), kafka_reason(error)};
}

void KafkaSink::on_failure(const KafkaSlots::Slot &slot, uint64_t opaque, rd_kafka_resp_err_t error,
                           const std::string &topic, int32_t partition) {
  if (kafka_outcome(error) == Outcome::Deferred) {
    reporter_->complete(topic_failed(slot, opaque, error, topic));
    release_turns_of(slot.key_hash);
    return;
  }
  const char *text =
      error == RD_KAFKA_RESP_ERR__NO_OFFSET ? "acknowledged without an offset" : rd_kafka_err2str(error);
  Outcome outcome = kafka_outcome(error);
  if (error == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION && !slot.placed)
    outcome = Outcome::Returned; /* its topic was deleted, or made again with fewer */
  std::string said = explain(error, text, topic, partition);
  if (is_batch_refusal(error)) {
    /* All of its batch go again, one at a time: the culprit is then refused alone. Nothing goes before all that is
     * under way is back, or it could be in one batch with others. */
    size_t culprit = topics_.refused(topic, opaque, now_);
    draining_ |= culprit == 0;
    outcome = culprit > 0 ? Outcome::Rejected : Outcome::Returned;
    if (culprit > 0 &&
        (error == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE || error == RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE))
      said += "; with its key and headers the event has " + std::to_string(culprit) +
              " bytes, more than the topic's max.message.bytes";
  } else if (!topics_.empty()) {
    topics_.ended(opaque);
  }
  ob_reason why = outcome == Outcome::Returned ? OB_REASON_NONE : kafka_reason(error);
  if (down_ && why == OB_REASON_TIMEOUT)
    why = last_reason_; /* it timed out for that */
  reporter_->complete(Completion{slot.ticket, slot.key_hash, outcome, -1, std::move(said), why});
  release_turns_of(slot.key_hash);
}

/* Parts of the sink that do not do well, while the rest does. */
void KafkaSink::say_how_it_is(Time now) {
  using std::chrono::seconds;
  constexpr seconds long_time{5};

  if (topics_changed_) {
    topics_changed_ = false;
    paused_ = topics_.summary();
  }
  if (now >= look_at_) {
    look_at_ = now + seconds(1);
    slow_.clear();
    const KafkaSlots::Slot *oldest = slots_.used() > 0 && !down_ ? slots_.oldest() : nullptr;
    if (oldest && oldest->topic && now - oldest->since >= long_time)
      slow_ = about_topic(oldest->topic->name()) + "has acknowledged nothing of an event for more than " +
              std::to_string(long_time.count()) +
              " s: a partition has no leader, or fewer in-sync replicas than min.insync.replicas";
  }
  const char *throttled = producer_ && producer_->throttled().count() > 0 && slots_.used() > 0
                              ? "throttled: the brokers make this client wait, by a quota"
                              : "";
  std::string said = !paused_.empty() ? paused_ : !slow_.empty() ? slow_ : throttled;
  if (said != degraded_) {
    degraded_ = said;
    reporter_->degraded(std::move(said));
  }
}

void KafkaSink::on_error(rd_kafka_event_t *event) {
  rd_kafka_resp_err_t error = rd_kafka_event_error(event);
  std::string text = rd_kafka_event_error_string(event);
  if (rd_kafka_event_error_is_fatal(event) || error == RD_KAFKA_RESP_ERR__FATAL) {
    fatal_ = text;
    return;
  }
  if (error == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN) {
    down_ = true;
    times_up_when_down_ = 0; /* one that is up then came after that */
    believe_up_at_ = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    reporter_->down(last_error_.empty() ? text : last_error_ + "; " + text, last_reason_);
    return;
  }
  if (kafka_outcome(error) != Outcome::SinkDown)
    return; /* librdkafka logs it as well, and tries again by itself */
  last_reason_ = kafka_reason(error);
  on_lost_connection(text);
  if (error != RD_KAFKA_RESP_ERR__TRANSPORT && error != RD_KAFKA_RESP_ERR__RESOLVE &&
      error !=
          RD_KAFKA_RESP_ERR__TIMED_OUT) { /* one broker of many may be away; wrong credentials are wrong everywhere */
    down_ = true;
    times_up_when_down_ = producer_->times_up();
    reporter_->down(last_error_, last_reason_);
  }
}

/* What an outage began with may be over while another reason goes on: a broker restarts with other credentials. */
void KafkaSink::on_lost_connection(std::string_view text) {
  std::string reason = producer_->explain(text);
  if (reason == last_error_)
    return;
  last_error_ = std::move(reason);
  if (down_)
    reporter_->down(last_error_, last_reason_);
}

/* There is no event for a broker that is connected and silent. */
void KafkaSink::check_stall(Time now) {
  if (slots_.used() == 0 || down_) { /* else the reason is known */
    check_at_ = down_ && now < believe_up_at_ ? believe_up_at_ : Time::max();
  } else if (stall_detector_.is_stalled(slots_.used(), now)) {
    check_at_ = now + StallDetector::patience / 6; /* again, as long as it lasts */
    reporter_->down(
        "no broker has acknowledged anything for " + std::to_string(StallDetector::patience.count()) + " s, and " +
            (slots_.used() == 1 ? "1 event waits for it" : std::to_string(slots_.used()) + " events wait for it"),
        OB_REASON_TIMEOUT);
  } else if (check_at_ == Time::max() || check_at_ <= now) {
    check_at_ = stall_detector_.stalled_at();
  }
}

/* Nor for one that is back, when there is nothing to send. */
void KafkaSink::check_return(Time now) {
  if (!down_ || !producer_ || now < believe_up_at_ || producer_->brokers_up() == 0 ||
      producer_->times_up() == times_up_when_down_)
    return;
  down_ = false;
  reporter_->up();
}

}  // namespace outbox
