/*
 * kafka_failures.cpp: what the failure of an event, a topic, a broker or all brokers means. Events of a refused
 * batch are returned without a write to their rows, and sent one at a time. A message for a partition that does not
 * exist fails while librdkafka holds its topic's locks, so the sink's next poll() purges the queue instead of the
 * interceptor.
 */
#include "kafka_errors.h"
#include "kafka_lane.h"

namespace outbox {

std::string KafkaLane::explain(rd_kafka_resp_err_t error, const char *text, const std::string &topic,
                               int32_t partition) const {
  std::string all = std::string(text) + ": topic \"" + topic + "\"";
  if (partition >= 0)
    all += ", partition " + std::to_string(partition);
  if (kafka_outcome(error) == Outcome::SinkDown && !last_error_.empty())
    all += "; " + last_error_;
  return all;
}

/* The topic's bounds are message.timestamp.before.max.ms and message.timestamp.after.max.ms. */
static std::string timestamp_advice(bool sends_created_at) {
  if (sends_created_at)
    return "; the record has the time of its event, which is outside of the topic's message.timestamp.before.max.ms or "
           "message.timestamp.after.max.ms: set option timestamp of the sink to 'now', and redrive the event";
  return "; the record has the time of sending: do the clocks of the database server and the broker agree?";
}

std::string about_topic(const std::string &topic) {
  return "topic \"" + topic + "\" ";
}

std::string KafkaLane::topic_problem(rd_kafka_resp_err_t error, const std::string &topic) const {
  if (!is_topic_failure(error))
    return about_topic(topic) + "cannot be written now: " + rd_kafka_err2str(error);
  if (error != RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED)
    return about_topic(topic) + "does not exist: create it, or let the brokers create topics";
  std::string user = sink_.config->user();
  return about_topic(topic) + "may not be written: grant WRITE on it to " +
         (user.empty() ? "the sink's principal" : "\"User:" + user + "\"");
}

/* The topic is at fault, not the event: it waits in the table until the topic can be written. */
Completion KafkaLane::topic_failed(const KafkaSlots::Slot &slot, uint64_t opaque, rd_kafka_resp_err_t error,
                                   const std::string &topic) {
  std::string reason = topic_problem(error, topic);
  KafkaTopics::Topic *known = topics_.find(topic);
  if (!known || known->reason != reason) {
    sink_.on_topic_paused(*this, topic, reason);
    topics_changed_ = true;
  }
  auto delay = topics_.failed(topic, opaque, reason, std::chrono::steady_clock::now());
  return {{Outcome::Deferred, std::move(reason), kafka_reason(error), delay.count()}, slot.ticket, slot.key_hash};
}

void KafkaLane::on_failure(const KafkaSlots::Slot &slot, uint64_t opaque, rd_kafka_resp_err_t error,
                           const KafkaProducer::Failed &failed) {
  const std::string &topic = failed.topic;
  if (kafka_outcome(error) == Outcome::Deferred) {
    sink_.reporter->complete(topic_failed(slot, opaque, error, topic));
    return_queued_of(slot.key_hash);
    return;
  }
  const char *text =
      error == RD_KAFKA_RESP_ERR__NO_OFFSET ? "acknowledged without an offset" : rd_kafka_err2str(error);
  Outcome outcome = kafka_outcome(error);
  if (error == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION && !slot.placed)
    outcome = Outcome::Returned; /* the topic was deleted, or created again with fewer partitions */
  std::string message = explain(error, text, topic, failed.partition);
  int max_refusals = 0;
  if (is_batch_refusal(error)) {
    /* All events of the batch are sent again one at a time, so that the culprit is refused alone. No event is sent
     * before all in flight have ended, otherwise it could share a batch with others. */
    size_t culprit = topics_.refused(topic, opaque, now_);
    draining_ |= culprit == 0;
    outcome = culprit > 0 ? Outcome::Retry : Outcome::Returned;
    max_refusals = 1; /* for good, unless every event is refused */
    if (culprit > 0 &&
        (error == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE || error == RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE))
      message += "; with its key and headers the event has " + std::to_string(culprit) +
                 " bytes, more than the topic's max.message.bytes";
    else if (culprit > 0 && error == RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP)
      message += timestamp_advice(sink_.config->sends_created_at());
  } else if (!topics_.empty()) {
    topics_.ended(opaque);
  }
  ob_reason why = outcome == Outcome::Returned ? OB_REASON_NONE : kafka_reason(error);
  if (down_ && why == OB_REASON_TIMEOUT)
    why = last_reason_; /* the outage caused the timeout */
  Completion ended{{outcome, std::move(message), why}, slot.ticket, slot.key_hash};
  ended.max_refusals = max_refusals;
  ended.unanswered = failed.unanswered;
  sink_.reporter->complete(std::move(ended));
  return_queued_of(slot.key_hash);
}

/* Looks for a part of the lane that has a problem while the rest works. */
void KafkaLane::look_for_slow(Time now) {
  using std::chrono::seconds;
  constexpr seconds long_time{5};

  if (now < look_at_)
    return;
  look_at_ = now + seconds(1);
  slow_.clear();
  const KafkaSlots::Slot *oldest = slots_.used() > 0 && !down_ ? slots_.oldest() : nullptr;
  if (!oldest || !oldest->topic || now - oldest->since < long_time)
    return;
  const std::string time = " for more than " + std::to_string(long_time.count()) + " s: ";
  if (const auto broker = producer_->silent_since(now - long_time))
    slow_ = "broker " + std::to_string(*broker) + " has not answered" + time +
            "it hangs, the network to it is cut or slow, or it waits for the replicas of a partition";
  else
    slow_ = about_topic(oldest->topic->name()) + "has acknowledged nothing of an event" + time +
            "a partition has no leader, or fewer in-sync replicas than min.insync.replicas, or the network to its "
            "broker is slow";
}

void KafkaLane::report_down(std::string text, ob_reason reason) {
  outage_ = {std::move(text), reason, outage_ ? outage_->since : std::chrono::steady_clock::now()};
  sink_.on_down(*this);
}

/* The next producer may fail too. How often that happens limits the circuit, or here the lane itself while others
 * work. */
void KafkaLane::report_failed_producer(std::string text, ob_reason reason) {
  constexpr std::chrono::seconds first{1}, longest{60};
  outage_ = {std::move(text), reason, outage_ ? outage_->since : std::chrono::steady_clock::now()};
  if (sink_.on_down(*this))
    return;
  reopen_pause_ = std::clamp(2 * reopen_pause_, first, longest);
  reopen_at_ = std::chrono::steady_clock::now() + reopen_pause_;
}

void KafkaLane::on_error(rd_kafka_event_t *event) {
  rd_kafka_resp_err_t error = rd_kafka_event_error(event);
  std::string text = rd_kafka_event_error_string(event);
  if (rd_kafka_event_error_is_fatal(event) || error == RD_KAFKA_RESP_ERR__FATAL) {
    fatal_ = text;
    return;
  }
  if (error == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN) {
    if ((was_closed_ || losses_.is_alone()) && !down_)
      closed_at_ = std::chrono::steady_clock::now(); /* librdkafka connects again: an outage only if that fails */
    else
      all_brokers_down(text);
    return;
  }
  if (kafka_outcome(error) != Outcome::SinkDown)
    return; /* librdkafka also logs it and retries by itself */
  last_reason_ = kafka_reason(error);
  on_lost_connection(text);
  if (closed_at_ != Time::max() && !was_closed_ && !losses_.is_alone() && producer_->brokers_up() == 0)
    all_brokers_down("all brokers are down");
  /* One of several brokers may be away; wrong credentials are wrong everywhere. */
  if (error != RD_KAFKA_RESP_ERR__TRANSPORT && error != RD_KAFKA_RESP_ERR__RESOLVE &&
      error != RD_KAFKA_RESP_ERR__TIMED_OUT) {
    down_ = true;
    times_up_when_down_ = producer_->times_up();
    report_down(last_error_, last_reason_);
  }
}

void KafkaLane::all_brokers_down(const std::string &text) {
  down_ = true;
  closed_at_ = Time::max();
  times_up_when_down_ = 0; /* a broker that is connected later connected after the outage began */
  trust_up_after_ = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  report_down(last_error_.empty() ? text : last_error_ + "; " + text, last_reason_);
}

/* The cause of an outage can change while it lasts: a broker restarts with other credentials. */
void KafkaLane::on_lost_connection(std::string_view text) {
  was_closed_ = is_ordinary_close(text);
  if (producer_->is_refused(text))
    last_reason_ = OB_REASON_BLOCKED; /* for librdkafka it is a connection that failed */
  else if (last_reason_ == OB_REASON_BLOCKED)
    last_reason_ = OB_REASON_CONNECTION;
  std::string reason = producer_->explain(text, sink_.has_delivered);
  if (reason == last_error_)
    return;
  last_error_ = std::move(reason);
  if (down_)
    report_down(last_error_, last_reason_);
}

static constexpr std::chrono::milliseconds suspect_pause{1000};

/* Replaces a producer that would send the same batch again. librdkafka tells the same error only every 30 s, so what
 * counts is how many of its connections are not up any more. */
void KafkaLane::check_losses() {
  if (!producer_ || !losses_.has_lost(producer_->connections_lost()) || slots_.used() == 0)
    return;
  const KafkaSlots::Slot &oldest = *slots_.oldest();
  const auto suspicion = losses_.suspect(slots_.used(), oldest.ticket, oldest.position);
  if (suspicion == KafkaLosses::Suspicion::None)
    return;
  if (suspicion == KafkaLosses::Suspicion::Some) {
    const std::string cause =
        "connections break again and again with the same event in flight: " + std::to_string(slots_.used()) +
        " events are sent again, one at a time";
    sink_.reporter->log(OB_LOG_WARNING, cause + ": " + last_error_);
    replace_producer(cause);
    return;
  }
  /* Until another event has passed, brokers may break at every event: the circuit opens, and others are tried. */
  const bool blamed = suspicion == KafkaLosses::Suspicion::Blamed;
  if (!blamed)
    report_failed_producer(last_error_, OB_REASON_CONNECTION);
  std::vector<Completion> ended = slots_.release_all("");
  for (Completion &each : ended)
    static_cast<Verdict &>(each) = {.outcome = blamed ? Outcome::RetryBlameSink : Outcome::Deferred,
                                    .error =
                                        "the connection breaks at this event, which was sent alone: " + last_error_,
                                    .reason = OB_REASON_CONNECTION,
                                    .retry_after_ms = blamed ? -1 : suspect_pause.count(),
                                    .unanswered = true};
  sink_.reporter->complete(std::move(ended));
  replace_producer("the connection broke at an event that was sent alone");
}

/* When poll() is needed again. */
void KafkaLane::plan_checks(Time now) {
  if (slots_.used() == 0 || down_)
    check_at_ = down_ && now < trust_up_after_ ? trust_up_after_
                : down_ && slots_.used() > 0   ? now + std::chrono::seconds(1) /* for check_clock() */
                                               : Time::max();
  else if (check_at_ == Time::max() || check_at_ <= now)
    check_at_ = now + std::chrono::seconds(1); /* for check_clock() */
}

/* After a failure nothing is sent until all events in flight have ended. A broker that is silent would hold that for
 * as long as it is silent, also the events for other brokers; librdkafka itself sends nothing either, until it has
 * renewed its producer id. While no broker is connected, waiting costs nothing and avoids duplicates. */
void KafkaLane::check_drain(Time now) {
  if (slots_.used() == 0 || down_ || !producer_ || !(draining_ || producer_->stopped())) {
    drain_until_ = Time::max();
    return;
  }
  if (drain_until_ == Time::max())
    drain_until_ = now + longest_drain;
  if (now < drain_until_)
    return;
  drain_until_ = Time::max();
  std::string why = "a broker has not answered for " + std::to_string(longest_drain.count()) +
                    (clock_went_back_ ? " s after the clock was set back; " : " s after an event had failed; ") +
                    std::to_string(slots_.used()) +
                    (slots_.used() == 1 ? " event is sent again" : " events are sent again");
  some_are_silent_ |= !clock_went_back_;
  sink_.reporter->log(OB_LOG_WARNING, "the Kafka producer is replaced: " + why);
  replace_producer(why);
}

/* librdkafka's threads wait for times of the wall clock (its issue 2145), for example for the next attempt to connect
 * to a broker or to get a producer id. After that clock was set back by an hour they would do nothing for an hour, so
 * they are replaced: when all events in flight have ended, after longest_drain at the latest, and at once while no
 * broker is connected. */
void KafkaLane::check_clock(Time now) {
  const std::chrono::nanoseconds before = std::exchange(wall_ahead_, wall_ahead(now));

  clock_went_back_ |= producer_ && wall_ahead_ < before - std::chrono::seconds(1);
  draining_ |= clock_went_back_;
  if (clock_went_back_ && down_)
    fatal_ = "the clock was set back while no broker was connected";
}

/* Detects that a broker is back while nothing is sent; librdkafka has no event for that either. */
void KafkaLane::check_reconnected(Time now) {
  if (closed_at_ != Time::max() && producer_) {
    const bool is_up =
        producer_->brokers_up() > 0 && now >= closed_at_ + std::chrono::seconds(1); /* trust_up_after_ */
    if (is_up)
      closed_at_ = Time::max();
    else if (now >= reconnected_by() && producer_->brokers_up() == 0)
      all_brokers_down("all brokers are down");
  }
  if (!down_ || !producer_ || now < trust_up_after_ || producer_->brokers_up() == 0 ||
      producer_->times_up() == times_up_when_down_)
    return;
  down_ = false;
  outage_.reset();
  sink_.on_up(now);
}

}  // namespace outbox
