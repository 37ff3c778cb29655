/* publisher.h: the thread of a RabbitMQ sink: publishes messages, and reports what the broker says. */
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "connection.h"
#include "delivery/net/peer_sender.h"
#include "rabbitmq_message.h"

namespace outbox::rabbitmq {

class Publisher final : public PeerSender<RabbitConfig, Connection, Message> {
public:
  Publisher(std::shared_ptr<const RabbitConfig> config, std::shared_ptr<Reporter> reporter);

private:
  /* A message that the broker has, and has not confirmed. */
  struct Unconfirmed {
    uint64_t serial;
    std::array<char, 36> id;
    std::string exchange, routing_key;
    bool counted;         /* RefusedTargets counts it: its target was refused before */
    std::string returned; /* why it could not be routed: overrides the confirm */
  };
  /* The name of a target in targets_. */
  static std::string target_of(const std::string &exchange, const std::string &routing_key);
  struct Waiting {
    uint64_t serial;
    Message message;
  };

  void forget_in_flight() override;
  size_t in_flight() const override;
  Time heartbeat_at() const;
  Time look_at() const override;
  void check_time(Time now) override;
  // ---- messages out ----
  bool is_careful() const override { return careful_left_ > 0; }
  void start(uint64_t serial, Message message) override;
  void start_at_target(uint64_t serial, Message &message);
  void publish(uint64_t serial, Message &message, RefusedTargets::Answer how);
  // ---- exchanges and routing keys that are refused ----
  void ask_next();
  void on_asked(bool there);
  void end_waiting(const std::string &exchange, bool there);
  std::string missing_text(const std::string &exchange) const;
  void defer_missing(uint64_t serial, const std::string &exchange);
  void on_target_passed(const Unconfirmed &message);
  void on_target_refused(const Unconfirmed &message, const std::string &why, ob_reason reason);
  void on_target_ended(const Unconfirmed &message);
  void send() override;
  std::string about(const std::string &target) const override;
  std::string problem() const override;
  // ---- frames in ----
  void on_received() override;
  void on_frame(const amqp_frame_t &frame);
  void on_connection(const amqp_frame_t &frame);
  void on_publishing(const amqp_frame_t &frame);
  void on_trying(const amqp_frame_t &frame);
  void on_asking(const amqp_frame_t &frame);
  void on_confirm(uint64_t tag, bool multiple, bool stored);
  void end_confirmed(const Unconfirmed &message, bool stored);
  void on_returned_properties(const amqp_frame_t &frame);
  void on_channel_closed(const amqp_channel_close_t &close);
  void on_trying_closed(const amqp_channel_close_t &close);
  void end_refused(const Unconfirmed &message, uint16_t code, const std::string &text);

  std::map<uint64_t, Unconfirmed> unconfirmed_; /* by delivery tag */
  uint64_t last_tag_ = 0;
  std::optional<Unconfirmed> tried_; /* the message on the channel `trying` */
  uint64_t last_try_tag_ = 0;
  std::map<amqp_channel_t, std::string> returned_; /* of a basic.return whose properties follow */
  /* The broker has closed the channel: so many messages are sent one at a time, so that the one to blame is found. */
  size_t careful_left_ = 0;
  /* A broker closes the channel when a message names an exchange that does not exist, so each is asked for before it
   * is used first, on a channel of its own. */
  std::set<std::string, std::less<>> there_; /* exchanges that exist */
  RefusedTargets exchanges_;                 /* those that do not */
  std::deque<std::string> to_ask_;
  std::string asked_; /* the exchange that the broker was asked for last */
  bool asking_ = false;
  std::map<std::string, std::deque<Waiting>, std::less<>> waiting_; /* for an answer, by exchange */
};

}  // namespace outbox::rabbitmq
