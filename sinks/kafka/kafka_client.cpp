/*
 * kafka_client.cpp: a probe has a client of its own, because the running producer knows only its present error, and
 * a probe must also work for a sink that is misconfigured or not running.
 */
#include "kafka_client.h"

#include "delivery/base/json_reader.h"
#include "kafka_library.h"
#include "kafka_log.h"

namespace outbox {

std::string broker_address(std::string_view text) {
  size_t scheme = text.find("://");
  size_t slash = text.find('/', scheme == text.npos ? 0 : scheme + 3);
  size_t colon = slash == text.npos ? slash : text.find(": ", slash);
  if (colon == text.npos || text.substr(0, colon).find(' ') != text.npos)
    return {};
  text = text.substr(0, slash);
  if (scheme != text.npos)
    text.remove_prefix(scheme + 3);
  return std::string(text);
}

static std::string property(const rd_kafka_conf_t *conf, const char *name) {
  char text[512] = "";
  size_t size = sizeof text;
  return rd_kafka_conf_get(conf, name, text, &size) == RD_KAFKA_CONF_OK ? text : "";
}

KafkaClient::KafkaClient(const KafkaConfig &config) {
  static constexpr std::pair<const char *, const char *> settings[] = {
      {"allow.auto.create.topics", "false"}, /* a probe must not create the topic that it looks for */
      {"enable.sparse.connections", "false"},
      {"statistics.interval.ms", "100"}, /* only statistics contain the producer id */
  };
  KafkaConf conf = config.conf();
  for (auto [name, value] : settings)
    rd_kafka_conf_set(conf.get(), name, value, nullptr, 0);
  mechanism_ = property(conf.get(), "sasl.mechanism");
  user_ = property(conf.get(), mechanism_ == "OAUTHBEARER" ? "sasl.oauthbearer.client.id" : "sasl.username");
  diagnosis_.attach(conf.get(), config.tokens(), config.guard());
  rd_kafka_conf_interceptor_add_on_new(conf.get(), "outbox", on_new, this);
  rd_kafka_conf_set_events(conf.get(), RD_KAFKA_EVENT_ERROR | RD_KAFKA_EVENT_LOG | RD_KAFKA_EVENT_STATS);
  kafka_ = start_kafka(std::move(conf));
  queue_ = rd_kafka_queue_get_main(kafka_);
}

KafkaClient::~KafkaClient() {
  rd_kafka_queue_destroy(queue_);
  diagnosis_.hang_up();
  rd_kafka_destroy(kafka_);
}

rd_kafka_resp_err_t KafkaClient::on_new(rd_kafka_t *kafka, const rd_kafka_conf_t *, void *self, char *, size_t) {
  return rd_kafka_interceptor_add_on_broker_state_change(kafka, "outbox", on_broker, self);
}

/* The callbacks run on librdkafka's threads and must not throw. */
rd_kafka_resp_err_t KafkaClient::on_broker(rd_kafka_t *, int32_t, const char *protocol, const char *name, int port,
                                           const char *state_, void *self_) {
  auto *self = static_cast<KafkaClient *>(self_);
  std::string_view state(state_);
  if (*name == '\0' || port == 0) /* librdkafka's own, of no address */
    return RD_KAFKA_RESP_ERR_NO_ERROR;
  or_out_of_memory([&] {
    std::lock_guard lock(self->mutex_);
    KafkaLink &link = self->links_[std::string(name) + ":" + std::to_string(port)];
    auto now = std::chrono::steady_clock::now();
    bool past_tls = state == "APIVERSION_QUERY" || state.starts_with("AUTH_") || state == "UP";
    if (!link.was_connected && (past_tls || state == "SSL_HANDSHAKE")) {
      link.was_connected = true;
      link.connected = now;
    }
    if (!link.was_secured && past_tls) {
      link.was_secured = true;
      link.secured = now;
    }
    link.was_authenticating |= state.starts_with("AUTH_");
    if (!link.was_up && state == "UP") {
      link.was_up = true;
      link.up = now;
    }
    link.protocol = protocol;
    if (state != "UPDATE")
      link.state = state;
  });
  return RD_KAFKA_RESP_ERR_NO_ERROR;
}

void KafkaClient::poll(std::chrono::milliseconds slice) {
  int wait = static_cast<int>(slice.count());
  while (rd_kafka_event_t *event = rd_kafka_queue_poll(queue_, wait)) {
    wait = 0;
    on_event(event);
    rd_kafka_event_destroy(event);
  }
}

void KafkaClient::on_event(rd_kafka_event_t *event) {
  switch (rd_kafka_event_type(event)) {
  case RD_KAFKA_EVENT_ERROR:
    on_error(event);
    break;
  case RD_KAFKA_EVENT_LOG:
    on_log(event);
    break;
  case RD_KAFKA_EVENT_STATS: {
    (void)read_json(rd_kafka_event_stats(event), [this](const JsonPath &path, const JsonValue &value) {
      if (path.size() == 2 && path[0] == "eos" && path[1] == "idemp_state")
        has_producer_id_ = value.text == "Assigned";
    });
    break;
  }
  default:
    break;
  }
}

void KafkaClient::on_error(rd_kafka_event_t *event) {
  rd_kafka_resp_err_t error = rd_kafka_event_error(event);
  std::string text = rd_kafka_event_error_string(event);
  if (rd_kafka_event_error_is_fatal(event) || error == RD_KAFKA_RESP_ERR__FATAL) {
    fatal_ = true;
    producer_id_problem_ = text;
  } else if (error == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN) {
    all_down_ = true;
  } else {
    on_failure(std::move(text));
  }
}

void KafkaClient::on_log(rd_kafka_event_t *event) {
  KafkaLogLine line;
  if (!line.read(event))
    return;
  if (line.facility == "GETPID")
    producer_id_problem_ = line.message;
  else if (line.facility == "FAIL") /* some failures are only logged */
    on_failure(std::string(line.message));
}

void KafkaClient::on_failure(std::string text) {
  std::string address = broker_address(text);
  if (address.empty())
    return;
  std::lock_guard lock(mutex_);
  links_[address].problem = std::move(text);
}

std::map<std::string, KafkaLink> KafkaClient::links() const {
  std::lock_guard lock(mutex_);
  return links_;
}

}  // namespace outbox
