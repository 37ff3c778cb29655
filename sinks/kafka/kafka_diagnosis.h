/*
 * kafka_diagnosis.h: explains to a database administrator why a connection to a broker fails. librdkafka reports
 * what it saw ("certificate verify failed"); this adds the cause and the option to check.
 */
#pragma once

#include <librdkafka/rdkafka.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "delivery/net/broker_guard.h"
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

  /* Returns the text of an error event or a failed message with an explanation in front, without the address to which
   * a broker's name resolves. `has_delivered`: the client has been used with the same options, so brokers that close
   * connections have other reasons than wrong ones. Any thread. */
  std::string explain(std::string_view text, bool has_delivered = false) const;
  /* Has the network guard refused the address of which the text tells? Any thread. */
  bool is_refused(std::string_view text) const { return !why_refused(text).empty(); }

private:
  static int on_certificate(rd_kafka_t *client, const char *broker, int32_t id, int *error, int depth,
                            const char *der, size_t size, char *text, size_t text_size, void *self);
  static int on_connect(int socket, const sockaddr *address, int size, const char *broker, void *self) noexcept;
  std::string why(std::string_view text, bool has_delivered) const;
  std::string why_refused(std::string_view text) const;
  std::string why_authentication(std::string_view text) const;
  std::string why_certificate(std::string_view text) const;
  std::string why_client_certificate(std::string_view text) const;

  std::string protocol_, mechanism_, user_, token_url_, certificate_;
  bool has_key_ = false;
  std::shared_ptr<const KafkaTokenSource> tokens_;
  mutable std::mutex mutex_;
  /* Certificate problems by the broker's host:port; guarded by mutex_. */
  std::map<std::string, std::string> certificates_;
  std::optional<BrokerGuard> guard_;
  std::map<std::string, Refusal> refusals_; /* by the broker's host:port, too; guarded by mutex_ */
};

}  // namespace outbox
