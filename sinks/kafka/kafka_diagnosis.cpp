/*
 * kafka_diagnosis.cpp: used for the sink's status and for probes. librdkafka's texts do not name what is wrong with
 * a certificate (so its verify callback is used here, without changing the result) nor the option to change, and
 * since 2.11 it only logs that a broker closed a connection at once.
 */
#include "kafka_diagnosis.h"

#include <openssl/x509_vfy.h>

#include <cstdlib>
#include <cstring>
#include <optional>

#include "delivery/base/clean_text.h"
#include "delivery/base/text.h"
#include "delivery/options/pem.h"

namespace outbox {

static std::string get(const rd_kafka_conf_t *conf, const char *name) {
  size_t size = 0;
  if (rd_kafka_conf_get(conf, name, nullptr, &size) != RD_KAFKA_CONF_OK || size <= 1)
    return {};
  std::string value(size, '\0');
  if (rd_kafka_conf_get(conf, name, value.data(), &size) != RD_KAFKA_CONF_OK)
    return {};
  value.resize(value.find('\0'));
  return value;
}

void KafkaDiagnosis::attach(rd_kafka_conf_t *conf, std::shared_ptr<const KafkaTokenSource> tokens,
                            std::optional<BrokerGuard> guard) {
  tokens_ = std::move(tokens);
  sockets_.set_guard(std::move(guard));
  protocol_ = get(conf, "security.protocol");
  mechanism_ = get(conf, "sasl.mechanism");
  user_ = get(conf, mechanism_ == "OAUTHBEARER" ? "sasl.oauthbearer.client.id" : "sasl.username");
  token_url_ = get(conf, "sasl.oauthbearer.token.endpoint.url");
  certificate_ = get(conf, "ssl.certificate.pem");
  has_key_ = !certificate_.empty() || !get(conf, "ssl.certificate.location").empty() ||
             !get(conf, "ssl.keystore.location").empty();
  rd_kafka_conf_set_opaque(conf, this);
  rd_kafka_conf_set_connect_cb(conf, on_connect);
  rd_kafka_conf_set_closesocket_cb(conf, on_close);
  if (get(conf, "enable.ssl.certificate.verification") == "true")
    rd_kafka_conf_set_ssl_cert_verify_cb(conf, on_certificate); /* fails only without TLS support */
}

int KafkaDiagnosis::on_connect(int socket, const sockaddr *address, int size, const char *broker, void *self) {
  return static_cast<KafkaDiagnosis *>(self)->sockets_.connect(socket, address, size, broker);
}

int KafkaDiagnosis::on_close(int socket, void *self) {
  return static_cast<KafkaDiagnosis *>(self)->sockets_.close(socket);
}

/* ---- the broker's certificate ---- */

/* Called on the broker's thread for each certificate of its chain. Returns OpenSSL's verdict unchanged, and records
 * it. */
int KafkaDiagnosis::on_certificate(rd_kafka_t *, const char *broker, int32_t, int *error, int depth, const char *der,
                                   size_t size, char *text, size_t text_size, void *self_) {
  if (*error == X509_V_OK)
    return 1;
  auto *self = static_cast<KafkaDiagnosis *>(self_);
  or_out_of_memory([&] {
    auto facts = certificate_facts(der, size).value_or(CertificateFacts{"?", "?", "?", false});
    std::string problem = certificate_problem(
        *error, {"its", depth, facts, "the broker in bootstrap_servers, and in its advertised.listeners,"});
    std::lock_guard lock(self->mutex_);
    snprintf(text, text_size, "%s", problem.c_str());
    self->certificates_[broker] = std::move(problem);
  });
  return 0;
}

/* ---- words ---- */

static bool has(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

std::string KafkaDiagnosis::why_certificate(std::string_view text) const {
  std::lock_guard lock(mutex_);
  for (const auto &[broker, problem] : certificates_)
    if (has(text, broker))
      return "TLS with broker " + broker + " failed: " + problem;
  return "TLS failed: the broker's certificate was not accepted; look at option ssl_ca_pem of the server";
}

std::string KafkaDiagnosis::why_client_certificate(std::string_view text) const {
  if (!has_key_)
    return "the broker wants a client certificate: set ssl_key_pem and ssl_certificate_pem in the user mapping";
  std::string ours = "the client's certificate";
  if (auto facts = certificate_facts(certificate_)) {
    ours += " (" + facts->subject + ")";
    if (facts->expired)
      return ours + " has expired on " + facts->ends +
             ": set a new ssl_key_pem and ssl_certificate_pem in the user mapping";
    ours += " of authority " + facts->issuer;
  }
  return ours + " is not accepted by the broker" +
         (has(text, "expired") ? ", because it has expired" : ": is that authority in the broker's trust store?");
}

std::string KafkaDiagnosis::why_authentication(std::string_view text) const {
  if (tokens_ && !has(text, "Unsupported SASL mechanism") && !has(text, "supported mechanisms"))
    return "the broker refuses the token of " + tokens_->who + ": " + tokens_->advice;
  if (has(text, "Failed to acquire SASL OAUTHBEARER token") || has(text, "OIDC"))
    return "no token from the token endpoint " + token_url_ + " for client \"" + user_ +
           "\": is it up, and are sasl_oauthbearer_client_id and _client_secret right?";
  if (has(text, "Unsupported SASL mechanism") || has(text, "supported mechanisms"))
    return "the broker does not offer SASL mechanism " + mechanism_ + ": correct option sasl_mechanism of the server";
  std::string failed = "SASL authentication failed for user \"" + user_ + "\" by " + mechanism_ +
                       ": look at the credentials in the user mapping";
  constexpr int scram_fixed_in = 0x020601ff;
  if (mechanism_.substr(0, 6) == "SCRAM-" && rd_kafka_version() < scram_fixed_in)
    failed += "; but if the broker is Kafka 4 or later, librdkafka " + std::string(rd_kafka_version_str()) +
              " cannot use SCRAM with it: librdkafka 2.6.1 or later can, and PLAIN over TLS works with this one";
  return failed;
}

/* Of "Disconnected (after 3ms in state UP)": 3. Nothing of another text. */
static std::optional<int> disconnected_after_ms(std::string_view text) {
  size_t after = text.rfind("(after ");
  if (!has(text, "Disconnected") || after == text.npos)
    return {};
  return atoi(text.data() + after + strlen("(after "));
}

static constexpr int at_once_ms = 2000;

/* How brokers react to a client with another security protocol. */
static bool hung_up_at_once(std::string_view text, bool sasl) {
  auto after_ms = disconnected_after_ms(text);
  return after_ms &&
         (has(text, "in state APIVERSION_QUERY") || (!sasl && has(text, "in state UP") && *after_ms < at_once_ms));
}

/* With SASL a connection is up when the broker has accepted the login. A token may end a moment later. */
bool is_ordinary_close(std::string_view text) {
  auto after_ms = disconnected_after_ms(text);
  const bool logged_in = has(text, "sasl_ssl://") || has(text, "sasl_plaintext://");
  return after_ms && has(text, "in state UP") && (logged_in || *after_ms >= at_once_ms);
}

/* Explains errors of the network. librdkafka's texts name the broker as "host:port/id: ". */
static std::string why_network(std::string_view text) {
  size_t quote = text.find("Failed to resolve '");
  if (quote != text.npos) {
    quote = text.find('\'', quote) + 1;
    std::string host(text.substr(quote, text.find('\'', quote) - quote));
    return "host name \"" + host.substr(0, host.rfind(':')) +
           "\" cannot be resolved: correct it in bootstrap_servers, or in the broker's advertised.listeners, or "
           "check "
           "the name resolution of the database server";
  }
  if (has(text, "Connect to ") && has(text, "refused"))
    return "connection refused: is the broker running, and is this its port?";
  if (has(text, "Connect to ") && (has(text, "No route") || has(text, "unreachable")))
    return "no route to host: check routes and firewalls between the database server and the broker";
  return {};
}

void KafkaDiagnosis::on_stray_answer(const char *broker) {
  if (!sockets_.on_stray_answer())
    return;
  std::lock_guard lock(mutex_);
  floods_[broker] = std::chrono::steady_clock::now();
}

/* A connection that is lost later has another cause. */
bool KafkaDiagnosis::is_flood(std::string_view text) const {
  constexpr std::chrono::minutes soon{1};
  std::lock_guard lock(mutex_);
  const auto flood = floods_.find(std::string(text.substr(0, text.find(": "))));
  return disconnected_after_ms(text) && flood != floods_.end() &&
         std::chrono::steady_clock::now() - flood->second < soon;
}

std::string KafkaDiagnosis::why(std::string_view text, bool has_delivered) const {
  if (is_flood(text))
    return "the broker sends answers that nobody has asked for, so its connection was ended: is it a Kafka broker, and "
           "what stands before it?";
  if (std::string network = why_network(text); !network.empty())
    return network;
  bool tls = protocol_ == "ssl" || protocol_ == "sasl_ssl", sasl = protocol_.substr(0, 5) == "sasl_";
  std::string now = " (now '" + protocol_ + "')";
  if (has(text, "certificate verify failed"))
    return why_certificate(text);
  if (has(text, "alert") &&
      (has(text, "certificate") || has(text, "unknown ca") || (has(text, "handshake failure") && !has_key_)))
    return why_client_certificate(text);
  if (tls &&
      (has(text, "wrong version number") || has(text, "PLAINTEXT broker listener") ||
       (has(text, "unexpected eof") && (has(text, "SSL handshake failed") || has(text, "in state SSL_HANDSHAKE")))))
    return "the broker does not speak TLS on this port: connect to its TLS port, or correct security_protocol" + now;
  if (has(text, "ApiVersionRequest failed: Local: Timed out"))
    return "the broker takes the connection and does not answer: is it running, is this the port of a Kafka broker, "
           "and is security_protocol right" +
           now + "?";
  if (has(text, "timed out in state SSL_HANDSHAKE"))
    return "the broker takes the connection and does not answer the TLS handshake: is it running, is this its TLS "
           "port, and is security_protocol right" +
           now + "?";
  const bool hung_up =
      has(text, "requesting ApiVersion") || has(text, "might require SASL") || hung_up_at_once(text, sasl);
  if (hung_up && has_delivered)
    return "the broker, or something before it, closes the connection; if the port was changed, correct "
           "security_protocol" +
           now;
  if (hung_up)
    return "the broker closed the connection at once: perhaps its port wants " +
           std::string(sasl  ? "TLS"
                       : tls ? "SASL"
                             : "TLS or SASL") +
           "; correct security_protocol" + now;
  if (has(text, "not valid in current SASL state"))
    return "the broker wants no SASL on this port: connect to its SASL port, or correct security_protocol" + now;
  if (sasl && (has(text, "SASL") || has(text, "OAUTHBEARER") || has(text, "uthentication")))
    return why_authentication(text);
  return {};
}

std::string_view without_timing(std::string_view text) {
  size_t timing = text.rfind(" (after ");
  return timing != text.npos && text.back() == ')' ? text.substr(0, timing) : text;
}

/* librdkafka names the address that it connects to as "ipv4#10.0.0.1:9092". Readers of errors see only the name. */
static std::string without_address(std::string_view text) {
  std::string shown(text);
  for (std::string_view family : {"ipv4#", "ipv6#"})
    for (size_t at = 0; (at = shown.find(family, at)) != shown.npos; at++)
      shown.replace(at, std::min(shown.find(' ', at), shown.size()) - at, "it");
  return shown;
}

/* librdkafka's buffer for an error has 512 bytes, and a text of the broker's may be cut off in it. */
static std::string of_librdkafka(std::string_view text) {
  constexpr size_t nearly_full = 500;
  return text.size() < nearly_full ? without_address(text) : peer_text(without_address(text), true);
}

std::string KafkaDiagnosis::explain(std::string_view text, bool has_delivered) const {
  if (std::string refused = sockets_.why_refused(text); !refused.empty())
    return refused;
  constexpr std::string_view no_token = "Failed to acquire SASL OAUTHBEARER token: ";
  if (size_t at = text.find(no_token); tokens_ && at != text.npos)
    return std::string(text.substr(at + no_token.size())); /* words of our own */
  std::string reason = why(text, has_delivered);
  text = without_timing(text);
  return reason.empty() ? of_librdkafka(text) : reason + " (librdkafka: " + of_librdkafka(text) + ")";
}

}  // namespace outbox
