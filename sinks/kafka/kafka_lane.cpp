/*
 * kafka_lane.cpp: the path of an event through a lane. librdkafka's threads do the work; this code runs on the main
 * thread, hands messages in and collects how they ended.
 */
#include "kafka_lane.h"

#include "kafka_errors.h"

namespace outbox {

KafkaLane::KafkaLane(KafkaShared &sink)
    : sink_(sink),
      producer_(std::make_unique<KafkaProducer>(*sink.config, sink.tokens.get(), sink.reporter->wake_fd())),
      topics_(sink.last_wait) {
  producer_->keep_offsets(sink.keeps_offsets);
}

Submitted KafkaLane::produce(const KafkaTicket &event, const Record &record) {
  if (slots_.used() == 0) {
    now_ = std::chrono::steady_clock::now();
    sink_.on_first(now_);
  }
  const KafkaTopics::Topic *refused = topics_.empty() ? nullptr : topics_.find(record.topic);
  const bool alone =
      event.alone || event.key_hash == 0 || (refused && refused->careful() && refused->max_in_flight == 1);
  KafkaProducer::Topic *topic = producer_->topic(record.topic);
  uint64_t opaque = slots_.take(event, topic, record, alone, now_);
  rd_kafka_resp_err_t error = topic ? producer_->produce(*topic, record, opaque) : rd_kafka_last_error();
  if (error == RD_KAFKA_RESP_ERR_NO_ERROR) {
    if (refused)
      topics_.submitted(record.topic, opaque, record.size(), now_);
    return true;
  }

  KafkaSlots::Slot slot;
  slots_.give(opaque, slot);
  if (is_topic_failure(error)) {
    topics_.submitted(record.topic, opaque, record.size(), now_); /* counts as the topic's probe */
    return topic_failed(slot, opaque, error, record.topic);
  }
  if (error == RD_KAFKA_RESP_ERR__QUEUE_FULL) {
    full_ = slots_.used() > 0;
    return false;
  }
  Outcome outcome = kafka_outcome(error);
  if (error == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE)
    outcome = Outcome::Rejected; /* decided by librdkafka's own limit: it will never fit */
  std::string message = explain(error, rd_kafka_err2str(error), record.topic, -1);
  ob_reason reason = outcome == Outcome::Returned ? OB_REASON_NONE : kafka_reason(error);
  return Completion{{outcome, std::move(message), reason}, event.ticket, event.key_hash};
}

static constexpr const char *waits_for_answer =
    "is sent one event at a time after a refusal, and a broker has not answered for 5 s";
static constexpr std::chrono::milliseconds queued_key_pause{1000};

/* Whether the event at this position may be sent now. */
bool KafkaLane::takes(int64_t position) {
  if (credit() == 0)
    return false;
  if (losses_.is_suspect(position)) {
    draining_ = slots_.used() > 0; /* until no other event is in flight */
    if (draining_)
      return false;
    losses_.send_alone();
  }
  return true;
}

Submitted KafkaLane::submit(const ob_event &event, bool may_wait) {
  const bool takes_it = waiting_.empty() && takes(event.position);
  if (!takes_it && !may_wait)
    return false;
  const KafkaTicket ticket{event.ticket, event.key_hash, event.position, event.alone};
  sink_.config->record(event, record_);
  if (takes_it)
    if (Submitted submitted = admit(ticket, record_); submitted || !may_wait)
      return submitted;
  waiting_.add({}, {ticket, record_.kept()});
  return true;
}

Submitted KafkaLane::admit(const KafkaTicket &event, const Record &record) {
  if (!producer_) {
    try {
      producer_ = std::make_unique<KafkaProducer>(*sink_.config, sink_.tokens.get(), sink_.reporter->wake_fd(),
                                                  some_are_silent_);
      producer_->keep_offsets(sink_.keeps_offsets);
    } catch (const BadInput &bad) {
      return Completion{
          {Outcome::SinkDown, std::string(bad.what()) + ": " + bad.detail}, event.ticket, event.key_hash};
    }
  }
  bool waits = topic_queues_.has(record.topic);
  if (KafkaTopics::Topic *refused = topics_.empty() ? nullptr : topics_.find(record.topic)) {
    Time now = std::chrono::steady_clock::now();
    switch (topics_.ask(*refused, now)) {
    case KafkaTopics::Answer::Defer:
      return Completion{
          {.outcome = Outcome::Deferred,
           .error = refused->reason.empty() ? about_topic(record.topic) + waits_for_answer : refused->reason,
           .retry_after_ms = topics_.wait(*refused, now).count()},
          event.ticket,
          event.key_hash};
    case KafkaTopics::Answer::Queue:
      waits = true;
      break;
    case KafkaTopics::Answer::Send:
      break;
    }
  }
  if (waits) {
    topic_queues_.add(record.topic, {event, record.kept()});
    return true;
  }
  if (topic_queues_.has_key(event.key_hash)) /* no back-pressure: events of other keys can be sent */
    return Completion{{.outcome = Outcome::Deferred,
                       .error = "waits behind an event of the same key, whose topic is sent one event at a time",
                       .retry_after_ms = queued_key_pause.count()},
                      event.ticket,
                      event.key_hash};
  return produce(event, record);
}

/* Sends queued events whose topics can take them now. */
void KafkaLane::send_queued() {
  if (topic_queues_.empty() || !producer_ || producer_->stopped() || draining_)
    return;
  bool paused = false;
  std::optional<uint64_t> failed_key;
  topic_queues_.each_queue([&](const KafkaQueues::Event &event) {
    if (failed_key || (losses_.is_alone() && slots_.used() > 0))
      return false; /* the event may be of the failed key */
    if (KafkaTopics::Topic *refused = topics_.find(event.record.topic))
      if (auto answer = topics_.ask(*refused, now_); answer != KafkaTopics::Answer::Send) {
        paused |= answer == KafkaTopics::Answer::Defer;
        return false;
      }
    Submitted submitted = produce(event.of, event.record);
    if (submitted.ended()) {
      failed_key = event.of.key_hash;
      sink_.reporter->complete(std::move(*submitted.ended()));
    }
    return static_cast<bool>(submitted);
  });
  if (paused) /* when they are submitted again, submit() defers them */
    sink_.reporter->complete(topic_queues_.release(0, true, "its topic is paused"));
  if (failed_key) {
    return_queued_of(*failed_key);
    send_queued();
  }
}

/* Sends events that had to wait for the lane. */
void KafkaLane::send_waiting() {
  bool again = !waiting_.empty();
  while (std::exchange(again, false)) {
    std::optional<uint64_t> failed_key;
    waiting_.each_queue([&](const KafkaQueues::Event &event) {
      if (failed_key || !takes(event.of.position))
        return false; /* the event may be of the failed key */
      Submitted submitted = admit(event.of, event.record);
      if (submitted.ended()) {
        failed_key = event.of.key_hash;
        sink_.reporter->complete(std::move(*submitted.ended()));
      }
      return static_cast<bool>(submitted);
    });
    if (failed_key) {
      return_queued_of(*failed_key);
      again = true;
    }
  }
}

/* Returns the queued events of a key after one of its events failed. */
void KafkaLane::return_queued_of(uint64_t key_hash) {
  constexpr const char *why = "waits behind a failed event of the same key";
  sink_.reporter->complete(topic_queues_.release(key_hash, false, why));
  sink_.reporter->complete(waiting_.release(key_hash, false, why));
}

void KafkaLane::release_waiting(const char *why) {
  sink_.reporter->complete(topic_queues_.release(0, true, why));
  sink_.reporter->complete(waiting_.release(0, true, why));
}

void KafkaLane::poll() {
  now_ = std::chrono::steady_clock::now();
  if (producer_) {
    /* Events come from one queue and endings from another. Endings that precede an event are handled first. */
    std::vector<KafkaProducer::Event> events;
    while (
        KafkaProducer::Event event =
            producer_->poll()) /* until it is empty: librdkafka signals the descriptor only when a queue was empty */
      events.push_back(std::move(event));
    on_endings(producer_->ended());
    for (const KafkaProducer::Event &event : events)
      on_event(event.get());
  }
  if (producer_ && producer_->stopped())
    producer_->purge_if_needed();
  if (producer_ && slots_.used() == 0)
    producer_->resume();
  check_clock(now_);
  check_losses();
  if (!fatal_.empty()) {
    replace_producer(fatal_);
    report_failed_producer(std::exchange(fatal_, {}), OB_REASON_OTHER);
  }
  if (slots_.used() == 0) {
    if (clock_went_back_)
      replace_producer("the clock was set back");
    draining_ = false;
  }
  send_queued();
  send_waiting();
  topics_changed_ |= topics_.forget_unused(now_);
  check_reconnected(now_);
  check_drain(now_);
  plan_checks(now_);
  look_for_slow(now_);
}

void KafkaLane::on_event(rd_kafka_event_t *event) {
  switch (rd_kafka_event_type(event)) {
  case RD_KAFKA_EVENT_ERROR:
    on_error(event);
    break;
  case RD_KAFKA_EVENT_LOG:
    on_log(event);
    break;
  default:
    break;
  }
}

static Completion acknowledgement(const KafkaSlots::Slot &slot, const KafkaProducer::Stored &at) {
  Completion completion{{Outcome::Sent}, slot.ticket, slot.key_hash};
  completion.acknowledgement = "partition " + std::to_string(at.partition) + ", offset " + std::to_string(at.offset);
  return completion;
}

void KafkaLane::on_endings(const KafkaProducer::Endings &endings) {
  std::vector<uint64_t> sent;
  std::vector<Completion> stored;
  /* Keeps the order in which the events ended. */
  const auto report = [&] {
    sink_.reporter->sent(std::exchange(sent, {}));
    sink_.reporter->complete(std::exchange(stored, {}));
  };
  size_t acknowledged = 0, bytes = 0;
  std::chrono::nanoseconds in_flight{0};
  for (const KafkaProducer::Ending &ending : endings.all) {
    KafkaSlots::Slot slot;
    if (!slots_.give(ending.opaque, slot))
      continue;
    full_ = false;
    losses_.ended(1);
    std::string resumed;
    if (ending.error == RD_KAFKA_RESP_ERR_NO_ERROR && !topics_.empty() &&
        topics_.acknowledged(ending.opaque, resumed)) {
      topics_changed_ = true;
      sink_.on_topic_resumed(resumed);
    }
    if (ending.error == RD_KAFKA_RESP_ERR_NO_ERROR) {
      if (ending.at >= 0) {
        stored.push_back(acknowledgement(slot, endings.stored_at[static_cast<size_t>(ending.at)]));
      } else {
        if (sent.empty())
          sent.reserve(endings.all.size());
        sent.push_back(slot.ticket);
      }
      down_ = false;
      acknowledged++;
      bytes += slot.size;
      in_flight += now_ - slot.since;
      continue;
    }
    report();
    static const KafkaProducer::Failed unknown{"", -1, false};
    on_failure(slot, ending.opaque, ending.error,
               ending.at < 0 ? unknown : endings.failed[static_cast<size_t>(ending.at)]);
  }
  report();
  if (acknowledged == 0)
    return;
  outage_.reset();
  reopen_pause_ = {};
  losses_.acknowledged();
  sink_.on_acknowledged(acknowledged, bytes, in_flight, std::chrono::steady_clock::now());
}

void KafkaLane::on_log(rd_kafka_event_t *event) {
  KafkaLogLine line;
  if (!line.read(event))
    return;
  /* Not every lost connection has an event: newer versions only log that a broker closed a connection at once. */
  if (line.facility == "FAIL" && producer_)
    on_lost_connection(line.message);
  if (line.facility == "FAIL" && (is_ordinary_close(line.message) ||
                                  sink_.log_repeats.is_repeat(line.message, std::chrono::steady_clock::now())))
    return sink_.reporter->log(OB_LOG_DEBUG, "librdkafka FAIL: " + std::string(line.text));
  ob_log_level level = line.level <= 4 ? OB_LOG_WARNING : line.level <= 6 ? OB_LOG_INFO : OB_LOG_DEBUG;
  sink_.reporter->log(level, "librdkafka " + std::string(line.facility) + ": " + std::string(line.text));
}

/* A fatal error, a clock that was set back, or a drain that takes too long ends this producer, not the lane.
 * Unacknowledged events are returned and sent by a new producer, which is created with the next event. After a fatal
 * error the circuit's backoff limits how often that happens. */
void KafkaLane::replace_producer(const std::string &cause) {
  const std::string why = "the Kafka producer was replaced: " + cause;
  sink_.reporter->complete(slots_.release_all(why));
  release_waiting(why.c_str());
  topics_.forget_in_flight();
  losses_.producer_replaced();
  full_ = draining_ = clock_went_back_ = was_closed_ = false;
  closed_at_ = Time::max();
  times_up_when_down_ = 0; /* the next producer counts from 0 */
  sink_.old_producers.destroy(std::move(producer_));
}

}  // namespace outbox
