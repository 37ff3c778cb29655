/*
 * refusals.cpp: exchanges that do not exist, and routing keys of an exchange that may not be written or lead to a
 * full queue. Their events wait; those of others go on.
 *
 * An exchange is asked for. A routing key is tried by a message: the queues behind it that are not full get a copy of
 * each, so there are few tries.
 */
#include "delivery/base/clean_text.h"
#include "publisher.h"

namespace outbox::rabbitmq {

static constexpr size_t most_exchanges = 10'000; /* that are known to exist */

/* The start of every text about an exchange: deferred events are found by it when the exchange is there. */
static std::string about_exchange(const std::string &exchange) {
  return "exchange " + in_quotes(exchange) + " ";
}

/* No exchange and no routing key has the separator within: both are texts of PostgreSQL. */
std::string Publisher::about(const std::string &target) const {
  const size_t end = target.find('\0');
  return "exchange " + in_quotes(target.substr(0, end)) + ", routing key " + in_quotes(target.substr(end + 1)) + " ";
}

std::string Publisher::target_of(const std::string &exchange, const std::string &routing_key) {
  std::string target;
  target.reserve(exchange.size() + 1 + routing_key.size());
  return target.append(exchange).append(1, '\0').append(routing_key);
}

// ---- exchanges ----

std::string Publisher::missing_text(const std::string &exchange) const {
  return about_exchange(exchange) + "does not exist in vhost " + in_quotes(config_->options.vhost) +
         ": declare it, or correct option exchange";
}

void Publisher::ask_next() {
  if (asking_ || to_ask_.empty())
    return;
  amqp_exchange_declare_t declare{};
  declare.exchange = as_bytes(to_ask_.front());
  declare.type = amqp_cstring_bytes("direct"); /* a passive declaration does not compare it */
  declare.passive = 1;
  connection_->send(asking, AMQP_EXCHANGE_DECLARE_METHOD, &declare);
  stall_detector_.on_submit(in_flight(), Clock::now());
  asking_ = true;
  asked_ = std::move(to_ask_.front());
  to_ask_.pop_front();
}

void Publisher::on_asked(bool there) {
  const std::string exchange = std::move(asked_);
  asking_ = false;
  stall_detector_.on_acknowledgement(received_at_);
  if (there) {
    if (there_.size() >= most_exchanges)
      there_.clear();
    there_.insert(exchange);
    if (exchanges_.accepted(exchange)) {
      reporter_->log(OB_LOG_INFO, about_exchange(exchange) + "is there");
      reporter_->resumed(about_exchange(exchange));
      report_problem(problem());
    }
  } else if (exchanges_.refused(exchange, missing_text(exchange), OB_REASON_TOPIC, true, Clock::now())) {
    report_problem(problem());
  }
  end_waiting(exchange, there);
  ask_next();
}

/* The answer about the exchange is there: its messages go on. */
void Publisher::end_waiting(const std::string &exchange, bool there) {
  auto waiting = waiting_.extract(exchange);
  if (waiting.empty())
    return;
  for (Waiting &each : waiting.mapped()) {
    if (there)
      start_at_target(each.serial, each.message);
    else
      defer_missing(each.serial, exchange);
  }
}

void Publisher::defer_missing(uint64_t serial, const std::string &exchange) {
  const auto delay = exchanges_.wait(exchange, Clock::now());
  queue_.fail(serial, Outcome::Deferred, missing_text(exchange), OB_REASON_TOPIC, delay.count());
}

// ---- routing keys ----

void Publisher::on_target_passed(const Unconfirmed &message) {
  if (targets_.any())
    passed(target_of(message.exchange, message.routing_key), message.counted);
}

void Publisher::on_target_refused(const Unconfirmed &message, const std::string &why, ob_reason reason) {
  refuse(message.serial, target_of(message.exchange, message.routing_key), why, reason, message.counted);
}

void Publisher::on_target_ended(const Unconfirmed &message) {
  if (message.counted)
    targets_.ended(target_of(message.exchange, message.routing_key), true);
}

void Publisher::send() {
  PeerSender::send();
  if (exchanges_.look(Clock::now()).forgotten)
    report_problem(problem());
}

std::string Publisher::problem() const {
  return exchanges_.any() ? exchanges_.summary() : targets_.summary();
}

}  // namespace outbox::rabbitmq
