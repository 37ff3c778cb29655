/*
 * kafka_token.cpp: gives tokens to librdkafka when they come, on the thread that renews them. librdkafka also asks
 * for them, by a callback within poll(), which is on the main thread: nothing is to be done there.
 */
#include "kafka_token.h"

namespace outbox {

void expect_tokens(rd_kafka_conf_t *conf) {
  rd_kafka_conf_set_oauthbearer_token_refresh_cb(conf, [](rd_kafka_t *, const char *, void *) {});
}

/* librdkafka shows the principal in its own log only; the broker reads it in the token. */
static constexpr const char *principal = "outbox";

void give_token(rd_kafka_t *client, const KafkaToken &token, std::chrono::steady_clock::time_point expires) {
  using namespace std::chrono;
  auto ends = system_clock::now().time_since_epoch() +
              std::min<steady_clock::duration>(expires - steady_clock::now(), hours(24 * 365));
  std::vector<const char *> extensions;
  for (const auto &[name, value] : token.extensions) {
    extensions.push_back(name.c_str());
    extensions.push_back(value.c_str());
  }
  char text[512] = "";
  if (rd_kafka_oauthbearer_set_token(client, token.text.c_str(), duration_cast<milliseconds>(ends).count(), principal,
                                     extensions.data(), extensions.size(), text,
                                     sizeof text) != RD_KAFKA_RESP_ERR_NO_ERROR)
    rd_kafka_oauthbearer_set_token_failure(client, text);
}

KafkaTokens::KafkaTokens(const std::shared_ptr<const KafkaTokenSource> &source, std::function<void(std::string)> warn)
    : warn_(std::move(warn)),
      tokens_([source](const Stop &stop) { return source->fetch(stop); }, [this] { give_all(); }) {}

void KafkaTokens::give(rd_kafka_t *client, const Renewed<KafkaToken>::Now &now) {
  if (now.value)
    give_token(client, *now.value, now.expires);
  else if (!now.error.empty())
    rd_kafka_oauthbearer_set_token_failure(client, now.error.c_str());
}

void KafkaTokens::add(rd_kafka_t *client) {
  std::lock_guard lock(mutex_);
  clients_.insert(client);
  give(client, tokens_.now());
}

void KafkaTokens::remove(rd_kafka_t *client) {
  std::lock_guard lock(mutex_);
  clients_.erase(client);
}

void KafkaTokens::give_all() {
  auto now = tokens_.now();
  {
    std::lock_guard lock(mutex_);
    for (rd_kafka_t *client : clients_)
      give(client, now);
  }
  if (now.value && !now.error.empty() && now.error != warned_)
    warn_("the token is valid for now, and could not be renewed: " + now.error);
  warned_ = now.error;
}

}  // namespace outbox
