/*
 * kafka_probe.cpp: connects, authenticates, reads metadata and permissions on the probe's thread, and records each
 * step.
 */
#include "kafka_probe.h"

#include <algorithm>
#include <memory>

#include "kafka_client.h"
#include "kafka_probe_topics.h"

namespace outbox {
namespace {

/* Steps of one kind: a large cluster that is down must not fill the screen. */
constexpr size_t max_rows = 4;

std::string plural(size_t n, const char *what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

class KafkaProbe {
public:
  KafkaProbe(const KafkaConfig &config, Probe &probe)
      : probe_(probe), tokens_(config.tokens()), client_(std::make_shared<KafkaClient>(config)),
        topics_(*client_, probe, config.topic_glob(), config.lets_topics_be_created()) {}

  std::shared_ptr<void> run() {
    if (token() && connect() && cluster()) {
      producer_id();
      topics_.check();
      brokers();
      probe_.can_deliver();
    }
    return client_;
  }

private:
  bool token();
  bool connect();
  void passed_until_up(const std::string &address, const KafkaLink &link, bool up);
  void failed_to_connect(const std::string &address, const KafkaLink &link);
  bool cluster();
  void producer_id();
  void brokers();

  Probe &probe_;
  const std::shared_ptr<const KafkaTokenSource> tokens_;
  std::shared_ptr<KafkaClient> client_;
  KafkaProbeTopics topics_;
  double token_ms_ = 0; /* when it had a token, since the start */
};

/* The text for a broker that neither responded nor failed. */
std::string silence(const KafkaLink &link, const std::string &address, const Probe &probe) {
  std::string within = " within " + std::to_string(probe.timeout().count()) + " ms";
  if (!link.was_connected)
    return "no connection to " + address + within;
  std::string what = link.state == "SSL_HANDSHAKE"     ? " the TLS handshake"
                     : link.state.starts_with("AUTH_") ? " the SASL authentication"
                                                       : "";
  return address + " accepts the connection and did not answer" + what + within;
}

/* How far a connection got; the one that got farthest is reported first. */
int reach(const KafkaLink &link) {
  return link.was_connected + link.was_secured;
}

/* librdkafka connects to no broker before it has a token. */
bool KafkaProbe::token() {
  if (!tokens_)
    return true;
  try {
    auto grant = tokens_->fetch([this] { return probe_.over(); });
    give_token(client_->handle(), grant.value, grant.expires);
    auto life = std::chrono::duration_cast<std::chrono::seconds>(grant.expires - Probe::Clock::now());
    probe_.passed("token", "there is one for " + tokens_->who + ", valid for " + std::to_string(life.count()) + " s");
    token_ms_ = probe_.ms_since_start(Probe::Clock::now());
    return true;
  } catch (const NotGranted &failure) {
    probe_.failed("token", failure.what(),
                  "The database server must reach the place that gives tokens, and prove itself there.");
    return false;
  }
}

/* One broker that responds is enough. */
bool KafkaProbe::connect() {
  while (!probe_.over()) {
    bool tried_all = client_->all_down();
    client_->poll(Probe::slice); /* poll once more after all failed: reasons may follow */
    for (const auto &[address, link] : client_->links())
      if (link.was_up) {
        passed_until_up(address, link, true);
        return true;
      }
    if (tried_all)
      break;
  }
  auto links = client_->links();
  std::vector<std::string> addresses;
  addresses.reserve(links.size());
  for (const auto &[address, link] : links)
    addresses.push_back(address);
  std::stable_sort(addresses.begin(), addresses.end(),
                   [&](auto &a, auto &b) { return reach(links[a]) > reach(links[b]); });
  addresses.resize(std::min(addresses.size(), max_rows));
  if (addresses.empty()) /* cancelled at once, or the time was too short for any attempt */
    probe_.failed("connect", "no connection was attempted within " + std::to_string(probe_.timeout().count()) + " ms",
                  "Give the probe more time.");
  for (const std::string &address : addresses)
    failed_to_connect(address, links[address]);
  return false;
}

void KafkaProbe::passed_until_up(const std::string &address, const KafkaLink &link, bool up) {
  bool tls = link.protocol.ends_with("ssl"), sasl = link.protocol.starts_with("sasl");
  double connected = probe_.ms_since_start(link.connected);
  double secured = probe_.ms_since_start(link.secured);
  if (link.was_connected)
    probe_.passed("connect", address + " accepts the connection", {}, connected - token_ms_);
  if (tls && link.was_secured)
    probe_.passed("TLS", "the broker's certificate is accepted", {}, secured - connected);
  if (!up)
    return;
  double answered = probe_.ms_since_start(link.up) - secured;
  if (sasl)
    probe_.passed("authenticate",
                  client_->mechanism() + (tokens_                   ? ", " + tokens_->who
                                          : client_->user().empty() ? ""
                                                                    : ", user \"" + client_->user() + "\""),
                  {}, answered);
  else
    probe_.passed("answer", "it is a Kafka broker, and asks for no authentication by SASL", {}, answered);
}

void KafkaProbe::failed_to_connect(const std::string &address, const KafkaLink &link) {
  bool tls = link.protocol.ends_with("ssl"), sasl = link.protocol.starts_with("sasl");
  passed_until_up(address, link, false);
  double took =
      probe_.ms_since_start(Probe::Clock::now()) - (link.was_secured     ? probe_.ms_since_start(link.secured)
                                                    : link.was_connected ? probe_.ms_since_start(link.connected)
                                                                         : 0);
  std::string why = link.problem.empty() ? silence(link, address, probe_) : client_->explain(link);
  if (!link.was_connected)
    probe_.failed("connect", why,
                  "Is the broker running, is this its port, does the name resolve on the database server, and is no "
                  "firewall in between?",
                  took);
  else if (tls && !link.was_secured)
    probe_.failed(
        "TLS", why,
        "See options security_protocol and ssl_ca_pem of the server, ssl_certificate_pem and ssl_key_pem of "
        "the user mapping.",
        took);
  else if (sasl && link.was_authenticating)
    probe_.failed("authenticate", why,
                  tokens_
                      ? "The broker's log says why."
                      : "See sasl_username and sasl_password of the user mapping, and option sasl_mechanism of the "
                        "server.",
                  took);
  else
    probe_.failed("answer", why, "Is this a Kafka broker, and is option security_protocol as this port wants it?",
                  took);
}

bool KafkaProbe::cluster() {
  rd_kafka_resp_err_t error = topics_.read();
  if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
    probe_.failed("cluster", "the broker returns no metadata of its cluster: " + std::string(rd_kafka_err2str(error)),
                  "See the broker's log; give the probe more time if it is only slow.");
    return false;
  }
  auto release = [this](char *id) { rd_kafka_mem_free(client_->handle(), id); };
  const std::unique_ptr<char, decltype(release)> id(rd_kafka_clusterid(client_->handle(), 0), release);
  probe_.passed("cluster", std::string(id ? id.get() : "of an old version, without a name") + ", " +
                               plural(topics_.brokers().size(), "broker"));
  return true;
}

void KafkaProbe::producer_id() {
  while (!client_->has_producer_id() && !client_->fatal() && !probe_.over())
    client_->poll(Probe::slice);
  if (client_->has_producer_id()) {
    probe_.passed("producer id", "the cluster gives one: retries make no duplicates");
    return;
  }
  std::string why = client_->producer_id_problem();
  bool denied = why.find("uthoriz") != std::string::npos;
  probe_.failed("producer id", why.empty() ? "the cluster gave none in time" : why,
                denied
                    ? "Allow the user to write to its topics (operation Write), or the operation IdempotentWrite on "
                      "the cluster."
                    : "See the log of the brokers: one that keeps the transaction state may be down.");
}

/* Events are sent to the leaders of partitions, at the addresses that the cluster announces, so every broker is
 * checked. */
void KafkaProbe::brokers() {
  auto known = topics_.brokers();
  std::map<std::string, KafkaLink> links;
  auto waits = [&] {
    links = client_->links();
    return std::any_of(known.begin(), known.end(), [&](auto &broker) {
      const KafkaLink &link = links[broker.address];
      return !link.was_up && link.problem.empty();
    });
  };
  while (waits() && !probe_.over())
    client_->poll(Probe::slice);

  size_t up = 0, failed = 0;
  for (const auto &[id, address] : known) {
    const KafkaLink &link = links[address];
    if (link.was_up) {
      up++;
      continue;
    }
    if (++failed > max_rows)
      continue;
    probe_.failed("broker " + std::to_string(id),
                  link.problem.empty() ? silence(link, address, probe_) : client_->explain(link),
                  "The cluster tells its clients the address " + address +
                      " (the broker's advertised.listeners): the database server must reach it.");
  }
  if (failed == 0)
    probe_.passed("brokers", "all answer: " + plural(up, "broker"));
  else if (failed > max_rows)
    probe_.failed("brokers", plural(up, "broker") + " of " + std::to_string(known.size()) + " answer");
}

}  // namespace

std::shared_ptr<void> probe_kafka(const KafkaConfig &config, Probe &probe) {
  return KafkaProbe(config, probe).run();
}

}  // namespace outbox
