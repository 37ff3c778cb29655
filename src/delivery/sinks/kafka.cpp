/*
 * kafka.cpp: the sink that produces to Apache Kafka through librdkafka, whose threads do the work. This side only
 * hands messages in and takes out how they ended, on the engine's thread.
 */
#include <algorithm>
#include <thread>
#include <unordered_set>

#include "../stall.h"
#include "../thread.h"
#include "kafka_errors.h"
#include "kafka_library.h"
#include "kafka_producer.h"
#include "kafka_properties.h"

namespace outbox {
namespace {

/* The events that librdkafka holds. What comes back names a slot and its generation, so that a report that is late
 * can never acknowledge another event. */
class Slots {
public:
  struct Slot {
    uint64_t ticket = 0;
    uint64_t key_hash = 0;
    uint32_t generation = 0;
    bool used = false;
  };

  uint64_t take(const ob_event &event) {
    if (free_.empty()) {
      free_.push_back(static_cast<uint32_t>(slots_.size()));
      slots_.emplace_back();
      free_.reserve(slots_.capacity()); /* so that give() cannot fail */
    }
    uint32_t index = free_.back();
    free_.pop_back();
    Slot &slot = slots_[index];
    slot.ticket = event.ticket;
    slot.key_hash = event.key_hash;
    slot.generation++;
    slot.used = true;
    used_++;
    /* Unordered, or the failing event of its key: the others wait for it in the table. */
    bool alone = event.key_hash == 0 || event.attempt > 1;
    return static_cast<uint64_t>(slot.generation) << 32 | (alone ? KafkaProducer::alone : 0) | index;
  }

  /* False for a report about an event that was given up. */
  bool give(uint64_t opaque, Slot &out) {
    uint32_t index = static_cast<uint32_t>(opaque & ~KafkaProducer::alone);
    if (index >= slots_.size() || !slots_[index].used || slots_[index].generation != opaque >> 32)
      return false;
    out = slots_[index];
    slots_[index].used = false;
    free_.push_back(index);
    used_--;
    return true;
  }

  size_t used() const { return used_; }

  std::vector<Completion> release_all(const std::string &why) {
    std::vector<Completion> released;
    released.reserve(used_);
    for (uint32_t index = 0; index < slots_.size(); index++)
      if (Slot slot; slots_[index].used && give(static_cast<uint64_t>(slots_[index].generation) << 32 | index, slot))
        released.push_back({slot.ticket, slot.key_hash, Result::Released, -1, why});
    return released;
  }

private:
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
  size_t used_ = 0;
};

class KafkaSink final : public Sink {
public:
  KafkaSink(std::shared_ptr<const KafkaConfig> config, std::shared_ptr<Reporter> reporter)
      : config_(std::move(config)), reporter_(std::move(reporter)),
        producer_(std::make_unique<KafkaProducer>(*config_, reporter_->wake_fd())) {}

  ~KafkaSink() override {
    producer_.reset();
    if (grave_.joinable())
      grave_.join();
  }

  uint32_t credit() const override {
    if (full_ || (producer_ && producer_->stopped()) || slots_.used() >= config_->max_messages())
      return 0;
    return config_->max_messages() - static_cast<uint32_t>(slots_.used());
  }

  bool submit(const ob_event &event) override;
  void flush() override { check_stall(std::chrono::steady_clock::now()); }
  void poll() override;
  Time check_at() const override { return check_at_; }
  void release_queued() override {
    if (producer_)
      producer_->purge_queued();
  }
  void abandon() override { reporter_->complete(slots_.release_all("given up while it was on its way")); }

private:
  void on_endings(const KafkaProducer::Endings &endings);
  void on_event(rd_kafka_event_t *event);
  void on_error(rd_kafka_event_t *event);
  void on_log(rd_kafka_event_t *event);
  void on_lost_connection(std::string_view text);
  void check_stall(Time now);
  void check_return(Time now);
  void bury();
  std::string explain(rd_kafka_resp_err_t error, const char *text, const std::string &topic, int32_t partition) const;

  std::shared_ptr<const KafkaConfig> config_;
  std::shared_ptr<Reporter> reporter_;
  std::unique_ptr<KafkaProducer> producer_; /* null after a fatal error, until the next event */
  std::thread grave_;                       /* destroys dead producers */
  Slots slots_;
  Stall stall_;
  Record record_;
  std::string last_error_; /* of a connection: why brokers are down */
  std::string fatal_;      /* set when the producer must be replaced */
  bool full_ = false;      /* librdkafka's own bound was hit: wait for a report */
  bool down_ = false;
  uint64_t times_up_when_down_ = 0;          /* a broker that has come up since shows that it is over */
  Time believe_up_at_{};                     /* librdkafka says that all are down before it says so of the last one */
  Time check_at_ = Time::max();              /* for a stall, or for that */
  std::unordered_set<uint64_t> failed_keys_; /* refused by librdkafka itself, not yet collected */
};

std::string KafkaSink::explain(rd_kafka_resp_err_t error, const char *text, const std::string &topic,
                               int32_t partition) const {
  std::string all = std::string(text) + ": topic \"" + topic + "\"";
  if (partition >= 0)
    all += ", partition " + std::to_string(partition);
  if (error == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART || error == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC)
    all += " (create the topic, or let the broker create topics)";
  if (kafka_result(error) == Result::SinkDown && !last_error_.empty())
    all += "; " + last_error_;
  return all;
}

bool KafkaSink::submit(const ob_event &event) {
  if (credit() == 0)
    return false;
  if (failed_keys_.count(event.key_hash) > 0) {
    reporter_->complete(Completion{event.ticket, event.key_hash, Result::Released, -1,
                                   "waits behind a failed event of the same key"});
    return true;
  }
  if (!producer_) {
    try {
      producer_ = std::make_unique<KafkaProducer>(*config_, reporter_->wake_fd());
    } catch (const BadInput &bad) {
      reporter_->complete(Completion{event.ticket, event.key_hash, Result::SinkDown, -1,
                                     std::string(bad.what()) + ": " + bad.detail});
      return true;
    }
  }
  try {
    config_->record(event, record_);
  } catch (const BadInput &bad) { /* the options have changed since it was enqueued, or its row */
    reporter_->complete(
        Completion{event.ticket, event.key_hash, Result::Rejected, -1, std::string(bad.what()) + ": " + bad.detail});
    return true;
  }
  if (slots_.used() == 0)
    stall_.on_submit(0, std::chrono::steady_clock::now());
  uint64_t opaque = slots_.take(event);
  rd_kafka_resp_err_t error = producer_->produce(record_, opaque);
  if (error == RD_KAFKA_RESP_ERR_NO_ERROR)
    return true;

  Slots::Slot slot;
  slots_.give(opaque, slot);
  if (error == RD_KAFKA_RESP_ERR__QUEUE_FULL) {
    full_ = slots_.used() > 0;
    return false;
  }
  Result result = kafka_result(error);
  if (error == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE || error == RD_KAFKA_RESP_ERR__INVALID_ARG)
    result = Result::Rejected; /* judged here, not by a broker: it will never do */
  else if (slot.key_hash != 0)
    failed_keys_.insert(slot.key_hash);
  reporter_->complete(
      Completion{slot.ticket, slot.key_hash, result, -1, explain(error, rd_kafka_err2str(error), record_.topic, -1)});
  return true;
}

void KafkaSink::poll() {
  failed_keys_.clear(); /* their reports are collected with these */
  if (producer_) {
    /* Events come from one queue and endings from another. Those that came before an event are told before it. */
    std::vector<KafkaProducer::Event> events;
    while (KafkaProducer::Event event = producer_->poll()) /* to the end: the queue rings only when it was empty */
      events.push_back(std::move(event));
    on_endings(producer_->ended());
    for (const KafkaProducer::Event &event : events)
      on_event(event.get());
  }
  if (producer_ && producer_->stopped()) {
    producer_->purge_rest();
    if (slots_.used() == 0)
      producer_->resume();
  }
  if (!fatal_.empty())
    bury();
  auto now = std::chrono::steady_clock::now();
  check_return(now);
  check_stall(now);
}

void KafkaSink::on_event(rd_kafka_event_t *event) {
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

void KafkaSink::on_endings(const KafkaProducer::Endings &endings) {
  std::vector<uint64_t> sent;
  bool acknowledged = false;
  for (const KafkaProducer::Ending &ending : endings.all) {
    Slots::Slot slot;
    if (!slots_.give(ending.opaque, slot))
      continue;
    full_ = false;
    if (ending.error == RD_KAFKA_RESP_ERR_NO_ERROR) {
      if (sent.empty())
        sent.reserve(endings.all.size());
      sent.push_back(slot.ticket);
      down_ = false;
      acknowledged = true;
      continue;
    }
    reporter_->sent(std::exchange(sent, {})); /* in the order in which it happened */
    static const KafkaProducer::Place nowhere{"", -1};
    const auto &[topic, partition] = ending.place < 0 ? nowhere : endings.places[static_cast<size_t>(ending.place)];
    const char *text = ending.error == RD_KAFKA_RESP_ERR__NO_OFFSET ? "acknowledged without an offset"
                                                                    : rd_kafka_err2str(ending.error);
    reporter_->complete(Completion{slot.ticket, slot.key_hash, kafka_result(ending.error), -1,
                                   explain(ending.error, text, topic, partition)});
  }
  reporter_->sent(std::move(sent));
  if (acknowledged)
    stall_.on_acknowledgement(std::chrono::steady_clock::now());
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
    reporter_->down(last_error_.empty() ? text : last_error_ + "; " + text);
    return;
  }
  if (kafka_result(error) != Result::SinkDown)
    return; /* librdkafka logs it as well, and tries again by itself */
  on_lost_connection(text);
  if (error != RD_KAFKA_RESP_ERR__TRANSPORT && error != RD_KAFKA_RESP_ERR__RESOLVE &&
      error !=
          RD_KAFKA_RESP_ERR__TIMED_OUT) { /* one broker of many may be away; wrong credentials are wrong everywhere */
    down_ = true;
    times_up_when_down_ = producer_->times_up();
    reporter_->down(last_error_);
  }
}

/* What an outage began with may be over while another reason goes on: a broker restarts with other credentials. */
void KafkaSink::on_lost_connection(std::string_view text) {
  std::string reason = producer_->explain(text);
  if (reason == last_error_)
    return;
  last_error_ = std::move(reason);
  if (down_)
    reporter_->down(last_error_);
}

void KafkaSink::on_log(rd_kafka_event_t *event) {
  const char *facility, *text;
  int level;
  if (rd_kafka_event_log(event, &facility, &text, &level) != 0)
    return;
  /* Not every lost connection is an event besides: newer versions only log that a broker hung up at once. */
  constexpr std::string_view thread_end = "]: ";
  if (std::string_view line = text; std::string_view(facility) == "FAIL" && producer_)
    if (size_t at = line.find(thread_end); at != line.npos)
      on_lost_connection(line.substr(at + thread_end.size()));
  ob_log_level mapped = level <= 4 ? OB_LOG_WARNING : level <= 6 ? OB_LOG_INFO : OB_LOG_DEBUG;
  reporter_->log(mapped, "librdkafka " + std::string(facility) + ": " + text);
}

/* There is no event for a broker that is connected and silent. */
void KafkaSink::check_stall(Time now) {
  if (slots_.used() == 0 || down_) { /* else the reason is known */
    check_at_ = down_ && now < believe_up_at_ ? believe_up_at_ : Time::max();
  } else if (stall_.is_stalled(slots_.used(), now)) {
    check_at_ = now + Stall::patience / 6; /* again, as long as it lasts */
    reporter_->down("no broker has acknowledged anything for " + std::to_string(Stall::patience.count()) +
                    " s, and " + std::to_string(slots_.used()) + " events wait for it");
  } else if (check_at_ == Time::max() || check_at_ <= now) {
    check_at_ = stall_.stalled_at();
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

/* A fatal error ends this producer, not the sink: what it had not acknowledged goes through a new one, which is made
 * with the next event, so that the circuit's backoff bounds how often. */
void KafkaSink::bury() {
  reporter_->complete(slots_.release_all("the Kafka producer was replaced: " + fatal_));
  reporter_->down(fatal_);
  fatal_.clear();
  full_ = false;
  grave_ = start_thread([dead = std::move(producer_), before = std::move(grave_)]() mutable {
    dead.reset();
    if (before.joinable())
      before.join();
  });
}

class KafkaKind final : public SinkKind {
public:
  KafkaKind() : SinkKind("kafka") {}

  const std::vector<OptionSpec> &options() const override { return KafkaConfig::options(); }
  bool check_other(ob_scope scope, const std::string &name, const std::string &value, bool superuser) const override {
    return check_kafka_property(scope, name, value, superuser);
  }
  void other_names(ob_scope scope, std::vector<const char *> &names) const override {
    kafka_property_names(scope, names);
  }
  void check_mapping(const Options &mapping) const override {
    KafkaProperties given;
    add_kafka_properties(mapping, given);
    check_kafka_key(given);
  }
  std::shared_ptr<const SinkConfig> parse(const Options &server, const Options *mapping) const override {
    return std::make_shared<KafkaConfig>(server, mapping);
  }
  std::unique_ptr<Sink> open(const std::string & /*name*/, std::shared_ptr<const SinkConfig> config,
                             std::shared_ptr<Reporter> reporter) const override {
    require_librdkafka();
    return std::make_unique<KafkaSink>(std::static_pointer_cast<const KafkaConfig>(std::move(config)),
                                       std::move(reporter));
  }
  KindDefaults defaults(const Options & /*server*/) const override { return {10, "exponential 100ms..5min"}; }
};

[[maybe_unused]] const SinkKind &registered = *new KafkaKind;

}  // namespace
}  // namespace outbox
