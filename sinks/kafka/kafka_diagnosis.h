/*
 * kafka_diagnosis.h: the callbacks of a client of librdkafka, and what they tell. It explains to a database
 * administrator why a connection to a broker fails. librdkafka reports what it saw ("certificate verify failed");
 * this adds the cause and the option to check.
 */
#pragma once

#include <librdkafka/rdkafka.h>

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "kafka_sockets.h"
#include "kafka_token.h"

namespace outbox {

/* Is this librdkafka's text of a connection that worked and was closed? Brokers and load balancers close connections
 * that were idle (connections.max.idle.ms) or whose authentication has ended (connections.max.reauth.ms). */
bool is_ordinary_close(std::string_view text);

/* librdkafka's text without "(after 3ms in state CONNECT, 5 identical error(s) suppressed)", with which each
 * repetition would count as another error. */
std::string_view without_timing(std::string_view text);

class KafkaDiagnosis {
public:
  /* Call it before rd_kafka_new() takes `conf`. `tokens`: where outbox gets the client's tokens; null if it does not.
   * `guard`: which addresses the client may connect to; nothing: all. Must outlive the client. */
  void attach(rd_kafka_conf_t *conf, std::shared_ptr<const KafkaTokenSource> tokens,
              std::optional<BrokerGuard> guard);
  /* Call it before rd_kafka_destroy(): the client's connections end, whatever its brokers send. */
  void hang_up() noexcept { sockets_.hang_up(); }
  /* Call it on a broker's thread, with its name in librdkafka's texts, for an answer that belongs to no request. */
  void on_stray_answer(const char *broker);

  /* Returns the text of an error event or a failed message with an explanation in front, without the address to which
   * a broker's name resolves. `has_delivered`: the client has been used with the same options, so brokers that close
   * connections have other reasons than wrong ones. Any thread. */
  std::string explain(std::string_view text, bool has_delivered = false) const;
  /* Has the network guard refused the address of which the text tells? Any thread. */
  bool is_refused(std::string_view text) const { return !sockets_.why_refused(text).empty(); }

private:
  static int on_certificate(rd_kafka_t *client, const char *broker, int32_t id, int *error, int depth,
                            const char *der, size_t size, char *text, size_t text_size, void *self);
  static int on_connect(int socket, const sockaddr *address, int size, const char *broker, void *self);
  static int on_close(int socket, void *self);
  std::string why(std::string_view text, bool has_delivered) const;
  std::string why_authentication(std::string_view text) const;
  std::string why_certificate(std::string_view text) const;
  std::string why_client_certificate(std::string_view text) const;
  bool is_flood(std::string_view text) const;

  std::string protocol_, mechanism_, user_, token_url_, certificate_;
  bool has_key_ = false;
  std::shared_ptr<const KafkaTokenSource> tokens_;
  mutable std::mutex mutex_;
  /* Certificate problems by the broker's host:port; guarded by mutex_. */
  std::map<std::string, std::string> certificates_;
  std::map<std::string, std::chrono::steady_clock::time_point> floods_; /* by the broker's name; guarded by mutex_ */
  KafkaSockets sockets_;
};

}  // namespace outbox
