/*
 * kafka_diagnosis.h: why a connection to a broker fails, in words that a database administrator can act on.
 * librdkafka tells what it saw ("certificate verify failed"); this adds what is behind it and which option to look
 * at.
 */
#pragma once

#include <librdkafka/rdkafka.h>

#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace outbox {

class KafkaDiagnosis {
public:
  /* Before rd_kafka_new() takes `conf`. Must outlive the client. */
  void attach(rd_kafka_conf_t *conf);

  /* `text` of an error event or of a failed message, with what is to be done about it in front. Never holds a
   * secret. Any thread. */
  std::string explain(std::string_view text) const;

private:
  static int on_certificate(rd_kafka_t *client, const char *broker, int32_t id, int *error, int depth,
                            const char *der, size_t size, char *text, size_t text_size, void *self);
  std::string why(std::string_view text) const;
  std::string why_authentication(std::string_view text) const;
  std::string why_certificate(std::string_view text) const;
  std::string why_client_certificate(std::string_view text) const;

  std::string protocol_, mechanism_, user_, token_url_, certificate_;
  bool has_key_ = false;
  mutable std::mutex mutex_;
  std::map<std::string, std::string> certificates_; /* what is wrong with them, by the broker's host:port */
};

}  // namespace outbox
