/*
 * publisher.h: the thread of a RabbitMQ sink. It owns the connection, publishes what the queue has, and reports
 * what the broker says. It waits only for the socket and the queue together.
 *
 *   disconnected --(connected, logged in)--> publishing <--(unblocked / blocked)--> blocked
 *        ^------------(connection lost, no confirm for 30 s)-----------------'
 */
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "connection.h"
#include "delivery/engine/refused_targets.h"
#include "delivery/engine/stall_detector.h"
#include "delivery/net/peer_thread.h"
#include "queued_message.h"
#include "rabbitmq_config.h"

namespace outbox::rabbitmq {

class Publisher final : PeerThread {
public:
  Publisher(std::shared_ptr<const RabbitConfig> config, std::shared_ptr<Reporter> reporter);
  ~Publisher() override; /* waits for the thread, and so for a resolver */

  SendQueue &queue() { return queue_; }

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

  void run_once() override;
  // ---- the connection ----
  void connect();
  void lose(const PeerError &error) override;
  Time heartbeat_at() const;
  Time look_at() const;
  void check_time();
  size_t in_flight() const { return unconfirmed_.size() + (tried_ ? 1 : 0) + (asking_ ? 1 : 0); }
  // ---- messages out ----
  void pump();
  void start(uint64_t serial, Message message);
  void start_at_target(uint64_t serial, Message &message);
  void publish(uint64_t serial, Message &message, RefusedTargets::Answer how);
  // ---- exchanges and routing keys that are refused ----
  void ask_next();
  void on_asked(bool there);
  void end_waiting(const std::string &exchange, bool there);
  std::string missing_text(const std::string &exchange) const;
  void defer_missing(uint64_t serial, const std::string &exchange);
  void on_target_refused(const Unconfirmed &message, const std::string &why, ob_reason reason);
  void on_target_passed(const Unconfirmed &message);
  void look_at_targets();
  void report_refusals();
  // ---- frames in ----
  void read();
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

  const std::shared_ptr<const RabbitConfig> config_;
  SendQueue queue_;

  /* From here on: the sink's thread only. */
  std::unique_ptr<Connection> connection_; /* null while disconnected */
  Time sent_at_{}, received_at_{};
  std::string blocked_;                         /* why the broker has blocked publishing; empty = it has not */
  std::map<uint64_t, Unconfirmed> unconfirmed_; /* by delivery tag */
  uint64_t last_tag_ = 0;
  std::vector<uint64_t> confirmed_;  /* serials, reported together */
  std::optional<Unconfirmed> tried_; /* the message on the channel `trying` */
  uint64_t last_try_tag_ = 0;
  std::map<amqp_channel_t, std::string> returned_; /* of a basic.return whose properties follow */
  /* The broker has closed the channel: so many messages are sent one at a time, so that the one to blame is found. */
  size_t careful_left_ = 0;
  /* A broker closes the channel when a message names an exchange that does not exist, so each is asked for before it
   * is used first, on a channel of its own. */
  std::set<std::string, std::less<>> there_; /* exchanges that exist */
  RefusedTargets exchanges_;                 /* those that do not */
  RefusedTargets targets_;                   /* exchanges and routing keys that are full or forbidden */
  std::deque<std::string> to_ask_;
  std::string asked_; /* the exchange that the broker was asked for last */
  bool asking_ = false;
  std::map<std::string, std::deque<Waiting>, std::less<>> waiting_; /* for an answer, by exchange */
  StallDetector stall_detector_;
};

}  // namespace outbox::rabbitmq
