/*
 * kafka_token.h: the tokens of SASL/OAUTHBEARER that outbox gets itself: by OAuth's client credentials, or signed for
 * Amazon MSK. librdkafka's own client (OIDC) is not in every build, and has nothing for MSK. So one way serves all
 * versions; librdkafka gets tokens itself only in the ways that are not here (other grant types, Azure's metadata).
 */
#pragma once

#include <librdkafka/rdkafka.h>

#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "delivery/identity/aws_credentials.h"
#include "delivery/identity/renewed.h"
#include "kafka_security.h"

namespace outbox {

struct KafkaToken {
  std::string text;
  std::vector<std::pair<std::string, std::string>> extensions; /* sent to the broker beside it */
};

/* Immutable: any thread. */
struct KafkaTokenSource {
  std::function<Grant<KafkaToken>(const Stop &stop)> fetch; /* as Renewed<>::Fetch */
  std::string who;                                          /* for texts: client "outbox" */
  std::string advice;                                       /* for a broker that refuses the token */
};

/* Whether outbox gets the tokens, by these properties. */
bool has_own_tokens(const KafkaProperties &given);

/* Whether it is a property of those tokens, which librdkafka does not get then. */
bool is_token_property(std::string_view name);

/* Checks such a property's value. Returns false if it is another property, or librdkafka's to check. Throws BadInput.
 */
bool check_token_property(std::string_view name, const std::string &option, const std::string &value);

/* The options that are no property of librdkafka. An empty text: not given. */
struct KafkaTokenOptions {
  std::string https_ca_pem, aws_region;
  aws::CredentialOptions credentials;

  static std::vector<Row<KafkaTokenOptions>> rows();
  void check_mapping() const; /* of a user mapping alone; throws BadInput */
};

/* Checks the options together. Throws BadInput. */
void check_kafka_tokens(const KafkaProperties &given, const KafkaTokenOptions &options, const Options &server,
                        const Options *mapping);

/* Null if outbox does not get the tokens. For options that check_kafka_tokens() has accepted. */
std::shared_ptr<const KafkaTokenSource> kafka_token_source(const KafkaProperties &given,
                                                           const KafkaTokenOptions &options);

/* Call it before rd_kafka_new(): librdkafka starts without a token, and its brokers wait for the first. */
void expect_tokens(rd_kafka_conf_t *conf);

/* Gives a client a token, which every connection from now on uses. Any thread. */
void give_token(rd_kafka_t *client, const KafkaToken &token, std::chrono::steady_clock::time_point expires);

/*
 * The tokens of a sink: renewed on a thread of its own, which gives each to the sink's clients. Without a valid token
 * it makes them report why (RD_KAFKA_RESP_ERR__AUTHENTICATION).
 */
class KafkaTokens {
public:
  /* `warn` is called on that thread when a renewal fails while the former token is still valid. */
  KafkaTokens(const std::shared_ptr<const KafkaTokenSource> &source, std::function<void(std::string)> warn);

  /* Any thread. A client must be removed before it is destroyed. */
  void add(rd_kafka_t *client);
  void remove(rd_kafka_t *client);

private:
  void give_all();
  void give(rd_kafka_t *client, const Renewed<KafkaToken>::Now &now);

  const std::function<void(std::string)> warn_;
  std::string warned_; /* the thread's */
  std::mutex mutex_;   /* guards clients_, and is held while they get a token */
  std::set<rd_kafka_t *> clients_;
  Renewed<KafkaToken> tokens_; /* last member: its thread uses the others */
};

}  // namespace outbox
