/*
 * kafka_producer.cpp: when a broker refuses a message, librdkafka would send the later messages of its key. So an
 * interceptor, called on the broker's thread, purges the queue before that thread can send more. A purge that
 * nobody requested stops the producer too: once in about 200 runs on a busy machine a late purge took messages that
 * were produced after it, and the next messages overtook them. The interceptor also reports how each message ended,
 * in 16 bytes, and delivery reports are off: 5.3 µs of main thread per event in a drain instead of 7.6 to 8.8,
 * because delivery reports return the messages to be freed on the main thread.
 */
#include "kafka_producer.h"

#include <unistd.h>

#include <cassert>

#include "kafka_errors.h"
#include "kafka_library.h"

namespace outbox {

/* True within rd_kafka_produceva(): an error that it returns needs no stop, because its caller handles it. */
static thread_local bool producing = false;

rd_kafka_resp_err_t KafkaProducer::on_new(rd_kafka_t *producer, const rd_kafka_conf_t *, void *self, char *, size_t) {
  rd_kafka_interceptor_add_on_broker_state_change(producer, "outbox", on_broker, self);
  rd_kafka_interceptor_add_on_request_sent(producer, "outbox", on_request, self);
  rd_kafka_interceptor_add_on_response_received(producer, "outbox", on_response, self);
  return rd_kafka_interceptor_add_on_acknowledgement(producer, "outbox", on_acknowledgement, self);
}

void KafkaProducer::wake_engine() const {
  constexpr uint64_t one = 1;
  while (write(fd_, &one, sizeof one) < 0 && errno == EINTR)
    ;
}

/* Called on a broker thread. librdkafka has no event for a broker that connects again. */
rd_kafka_resp_err_t KafkaProducer::on_broker(rd_kafka_t *, int32_t id, const char *, const char *name, int port,
                                             const char *state, void *self_) {
  auto *self = static_cast<KafkaProducer *>(self_);
  or_out_of_memory([&] {
    std::lock_guard lock(self->brokers_mutex_);
    const bool came = self->connections_.on_state(id, name, port, state);
    self->brokers_up_ = self->connections_.up();
    self->connections_lost_ = self->connections_.lost();
    if (!came)
      return;
    self->times_up_++;
    self->wake_engine();
  });
  return RD_KAFKA_RESP_ERR_NO_ERROR;
}

/* Called on a broker thread. */
rd_kafka_resp_err_t KafkaProducer::on_request(rd_kafka_t *, int, const char *, int32_t id, int16_t, int16_t, int32_t,
                                              size_t, void *self_) {
  auto *self = static_cast<KafkaProducer *>(self_);
  or_out_of_memory([&] {
    std::lock_guard lock(self->brokers_mutex_);
    self->connections_.on_request(id, std::chrono::steady_clock::now());
  });
  return RD_KAFKA_RESP_ERR_NO_ERROR;
}

/* Called on a broker thread, also for a request that has failed. */
rd_kafka_resp_err_t KafkaProducer::on_response(rd_kafka_t *, int, const char *name, int32_t id, int16_t api, int16_t,
                                               int32_t, size_t, int64_t round_trip_us, rd_kafka_resp_err_t error,
                                               void *self_) {
  auto *self = static_cast<KafkaProducer *>(self_);
  constexpr int16_t produce = 0;
  or_out_of_memory([&] {
    if (error == RD_KAFKA_RESP_ERR__NOENT) /* an answer to a request that has failed before, or to none */
      return self->diagnosis_.on_stray_answer(name);
    std::lock_guard lock(self->brokers_mutex_);
    self->connections_.on_answer(id);
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR || round_trip_us <= 0 || id < 0)
      return;
    Answers &of = self->answers_[id];
    of.all.add(std::chrono::microseconds(round_trip_us));
    if (api != produce)
      return;
    of.produce.add(std::chrono::microseconds(round_trip_us));
    of.n_produce++;
  });
  return RD_KAFKA_RESP_ERR_NO_ERROR;
}

KafkaRoundTrips KafkaProducer::round_trips() const {
  KafkaRoundTrips farthest;
  std::lock_guard lock(brokers_mutex_);
  uint64_t n_produce = 0;
  for (const auto &[id, of] : answers_) {
    n_produce += of.n_produce;
    if (KafkaRoundTrips its{of.all.fast(), of.produce.fast()};
        its.produce.count() > 0 && its.network > farthest.network)
      farthest = its;
  }
  farthest.n_produce = n_produce;
  return farthest;
}

std::optional<int32_t> KafkaProducer::silent_since(std::chrono::steady_clock::time_point time) const {
  std::lock_guard lock(brokers_mutex_);
  return connections_.silent_since(time);
}

/* Called inside librdkafka, so it must not throw: endings_ has capacity for every message that can be in flight. */
void KafkaProducer::add_ending(const rd_kafka_message_t *message) {
  Ending ending{reinterpret_cast<uint64_t>(message->_private), message->err, -1};
  /* librdkafka can take the success of a later batch for this one's, although the broker never stored it (a partition
   * that just comes up). Only an offset proves that the message was stored. */
  if (ending.error == RD_KAFKA_RESP_ERR_NO_ERROR && message->offset < 0)
    ending.error = RD_KAFKA_RESP_ERR__NO_OFFSET;
  if (message->partition >= partitions_seen_)
    partitions_seen_ = message->partition + 1;
  or_out_of_memory([&] {
    std::lock_guard lock(endings_mutex_);
    if (ending.error != RD_KAFKA_RESP_ERR_NO_ERROR) {
      endings_.failed.push_back({rd_kafka_topic_name(message->rkt), message->partition,
                                 rd_kafka_message_status(message) == RD_KAFKA_MSG_STATUS_POSSIBLY_PERSISTED});
      ending.at = static_cast<int32_t>(endings_.failed.size() - 1);
    } else if (keeps_offsets_) {
      endings_.stored_at.push_back({message->offset, message->partition});
      ending.at = static_cast<int32_t>(endings_.stored_at.size() - 1);
    }
    if (endings_.all.empty())
      wake_engine();
    endings_.all.push_back(ending);
    if (is_topic_failure(ending.error))
      topic_failed_ = true;
  });
}

const KafkaProducer::Endings &KafkaProducer::ended() {
  assert(main_.is_current());
  taken_.all.clear();
  taken_.failed.clear();
  taken_.stored_at.clear();
  std::lock_guard lock(endings_mutex_);
  std::swap(taken_, endings_);
  topic_failed_ = false; /* the caller now knows about the topic, and defers its events */
  return taken_;
}

/* The purge has been requested when this returns, whichever thread did it. It waits for produce(), so the caller must
 * hold no lock of librdkafka: what produce() has just queued must not be sent before the purge. */
void KafkaProducer::stop_and_purge(rd_kafka_t *producer) {
  std::lock_guard lock(mutex_);
  stopped_ = true;
  if (!purged_.exchange(true)) /* true before the purge: what this thread ends within it is not a late purge */
    purge(producer);
  purge_needed_ = false;
}

/* Stops the producer if the message has failed and later messages of its key may follow. Called on a thread of
 * librdkafka. */
void KafkaProducer::stop_for(rd_kafka_t *producer, const rd_kafka_message_t *message) {
  rd_kafka_resp_err_t error = message->err;
  if (is_topic_failure(error))
    return; /* all messages of the topic fail with it; other topics are not affected */
  bool stored = error == RD_KAFKA_RESP_ERR_NO_ERROR && message->offset >= 0;
  bool unsure = error == RD_KAFKA_RESP_ERR_NO_ERROR && !stored;
  /* librdkafka takes earlier messages for stored when a later batch was stored. It holds locks then; the messages of
   * that batch end next, on the same thread, without locks and before the thread sends again. */
  if (stored && purge_needed_)
    stop_and_purge(producer);
  /* Broker threads purge when they get to it: a purge before a resume() can take messages that were produced after
   * it, and messages after those would overtake them. Broker threads hold no locks there. After a fatal error another
   * thread purges, with locks held, but nothing more is sent. */
  bool late_purge = error == RD_KAFKA_RESP_ERR__PURGE_QUEUE && !purged_ && !purge_requested_;
  bool ours = stored || (error == RD_KAFKA_RESP_ERR__PURGE_QUEUE && !late_purge) ||
              error == RD_KAFKA_RESP_ERR__PURGE_INFLIGHT || error == RD_KAFKA_RESP_ERR__DESTROY;
  if (ours || (reinterpret_cast<uint64_t>(message->_private) & alone) != 0)
    return;
  bool holds_locks = late_purge ? rd_kafka_fatal_error(producer, nullptr, 0) != RD_KAFKA_RESP_ERR_NO_ERROR
                                : rd_kafka_message_broker_id(message) < 0;
  if (!unsure && message->partition < 0) {
    stopped_ = true; /* an unknown topic: nothing can have been sent, and librdkafka holds locks here, so no purge */
  } else if (holds_locks) {
    /* Purged by a fatal error, taken for stored, or for a partition that the topic does not have. librdkafka holds
     * the locks that a purge needs, so the next message of the batch purges, or the sink's next poll(). */
    purge_needed_ = stopped_ = true;
  } else if (!purged_) {
    stop_and_purge(producer);
  }
}

/* The interceptor. Called on a thread of librdkafka, or within produce(). It stops the producer before it adds the
 * ending, so whoever reads the ending sees the producer stopped. */
rd_kafka_resp_err_t KafkaProducer::on_acknowledgement(rd_kafka_t *producer, rd_kafka_message_t *message,
                                                      void *self_) {
  auto *self = static_cast<KafkaProducer *>(self_);
  if (producing)
    return RD_KAFKA_RESP_ERR_NO_ERROR;
  self->stop_for(producer, message);
  self->add_ending(message);
  return RD_KAFKA_RESP_ERR_NO_ERROR;
}

/* The producer whose poll() is running. on_throttle() needs it, because KafkaDiagnosis uses librdkafka's opaque
 * pointer. */
static thread_local KafkaProducer *polling = nullptr;

KafkaProducer::Event KafkaProducer::poll() {
  assert(main_.is_current());
  polling = this;
  return {rd_kafka_queue_poll(queue_, 0), rd_kafka_event_destroy};
}

/* Called within poll(), also with 0 ms when the throttling is over. */
void KafkaProducer::on_throttle(rd_kafka_t *, const char *, int32_t, int ms, void *) {
  if (polling)
    polling->throttled_ms_ = ms;
}

KafkaProducer::KafkaProducer(const KafkaConfig &config, KafkaTokens *tokens, int fd, bool some_are_silent)
    : tokens_(tokens), fd_(fd) {
  for (Endings *endings : {&endings_, &taken_})
    endings->all.reserve(config.max_messages());
  KafkaConf conf = config.conf();
  if (some_are_silent)
    rd_kafka_conf_set(conf.get(), "enable.sparse.connections", "false", nullptr, 0);
  diagnosis_.attach(conf.get(), config.tokens(), config.guard());
  rd_kafka_conf_interceptor_add_on_new(conf.get(), "outbox", on_new, this);
  rd_kafka_conf_set_throttle_cb(conf.get(), on_throttle);
  rd_kafka_conf_set_events(conf.get(), RD_KAFKA_EVENT_ERROR | RD_KAFKA_EVENT_LOG);
  producer_ = start_kafka(std::move(conf));
  queue_ = rd_kafka_queue_get_main(producer_);
  constexpr uint64_t one = 1;
  rd_kafka_queue_io_event_enable(queue_, fd, &one, sizeof one);
  if (tokens_)
    tokens_->add(producer_);
}

KafkaProducer::~KafkaProducer() {
  if (tokens_)
    tokens_->remove(producer_);
  rd_kafka_queue_io_event_enable(queue_, -1, nullptr, 0);
  topics_.clear();
  rd_kafka_queue_destroy(queue_);
  diagnosis_.hang_up();
  rd_kafka_destroy(producer_);
}

KafkaProducer::Topic *KafkaProducer::topic(const std::string &name) {
  assert(main_.is_current());
  constexpr size_t plenty = 1000; /* a limit, because topic names come from events */
  auto at = topics_.find(name);
  if (at != topics_.end())
    return &at->second;
  if (topics_.size() >= plenty)
    std::erase_if(topics_, [](const auto &each) { return each.second.in_use == 0; });
  Topic made{decltype(Topic::handle)(rd_kafka_topic_new(producer_, name.c_str(), nullptr))};
  return made.handle ? &topics_.emplace(name, std::move(made)).first->second : nullptr;
}

static rd_kafka_vu_t field(rd_kafka_vtype_t type) {
  rd_kafka_vu_t field{};
  field.vtype = type;
  return field;
}

static rd_kafka_vu_t bytes(rd_kafka_vtype_t type, const ob_text &text) {
  rd_kafka_vu_t vu = field(type);
  vu.u.mem.ptr = const_cast<char *>(text.data);
  vu.u.mem.size = text.data ? text.len : 0;
  return vu;
}

rd_kafka_resp_err_t KafkaProducer::produce(Topic &topic, const Record &record, uint64_t opaque) {
  assert(main_.is_current());
  std::unique_ptr<rd_kafka_headers_t, decltype(&rd_kafka_headers_destroy)> headers(
      rd_kafka_headers_new(record.headers.size()), rd_kafka_headers_destroy);
  for (const ob_header &header : record.headers)
    rd_kafka_header_add(headers.get(), header.name.data, static_cast<ssize_t>(header.name.len), header.value.data,
                        header.value.data ? static_cast<ssize_t>(header.value.len) : 0);

  rd_kafka_vu_t fields[] = {field(RD_KAFKA_VTYPE_RKT),
                            field(RD_KAFKA_VTYPE_MSGFLAGS),
                            bytes(RD_KAFKA_VTYPE_VALUE, record.value),
                            bytes(RD_KAFKA_VTYPE_KEY, record.key),
                            field(RD_KAFKA_VTYPE_OPAQUE),
                            field(RD_KAFKA_VTYPE_HEADERS),
                            field(RD_KAFKA_VTYPE_TIMESTAMP),
                            field(RD_KAFKA_VTYPE_PARTITION)};
  fields[0].u.rkt = topic.handle.get();
  fields[1].u.i = RD_KAFKA_MSG_F_COPY;
  fields[4].u.ptr = reinterpret_cast<void *>(opaque);
  fields[5].u.headers = headers.get();
  fields[6].u.i64 = record.timestamp_ms;
  fields[7].u.i32 = record.partition < 0 ? RD_KAFKA_PARTITION_UA : record.partition;

  std::unique_lock lock(mutex_);
  if (stopped_ || topic_failed_)
    return RD_KAFKA_RESP_ERR__QUEUE_FULL;
  producing = true;
  rd_kafka_error_t *error = rd_kafka_produceva(producer_, fields, std::size(fields));
  producing = false;
  lock.unlock();
  purge_if_needed();
  if (!error) {
    headers.release(); /* owned by the message now */
    return RD_KAFKA_RESP_ERR_NO_ERROR;
  }
  rd_kafka_resp_err_t code = rd_kafka_error_code(error);
  rd_kafka_error_destroy(error);
  return code;
}

}  // namespace outbox
