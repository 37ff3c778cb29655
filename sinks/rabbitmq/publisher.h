/*
 * publisher.h: the thread of a RabbitMQ sink. It owns the connection, publishes what the handover has, and reports
 * what the broker says. It waits only for the socket and the handover together.
 *
 *   disconnected --(connected, logged in)--> publishing <--(unblocked / blocked)--> blocked
 *        ^------------(connection lost, no confirm for 30 s)-----------------'
 */
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "connection.h"
#include "delivery/engine/stall_detector.h"
#include "delivery/net/peer_thread.h"
#include "exchanges.h"
#include "handover.h"
#include "rabbitmq_config.h"

namespace outbox::rabbitmq {

class Publisher final : PeerThread {
public:
  Publisher(std::shared_ptr<const RabbitConfig> config, std::shared_ptr<Reporter> reporter);
  ~Publisher() override; /* waits for the thread, and so for a resolver */

  Handover &handover() { return handover_; }

private:
  /* A message that the broker has, and has not confirmed. */
  struct Unconfirmed {
    uint64_t serial;
    std::array<char, 36> id;
    std::string exchange, routing_key;
    std::string returned; /* why it could not be routed: overrides the confirm */
  };
  struct Waiting {
    uint64_t serial;
    Message message;
  };

  void run_once() override;
  // ---- the connection ----
  void connect();
  void lose(const Trouble &trouble) override;
  Time heartbeat_at() const;
  Time look_at() const;
  void check_time();
  // ---- messages out ----
  void pump();
  void start(uint64_t serial, Message message);
  void publish(uint64_t serial, Message &message);
  void ask_next();
  void defer(uint64_t serial, const Message &message);
  void end_waiting(const std::string &exchange, bool there);
  // ---- frames in ----
  void read();
  void on_frame(const amqp_frame_t &frame);
  void on_connection(const amqp_frame_t &frame);
  void on_publishing(const amqp_frame_t &frame);
  void on_asking(const amqp_frame_t &frame);
  void on_confirm(uint64_t tag, bool multiple, bool stored);
  void end_confirmed(const Unconfirmed &message, bool stored);
  void on_return(const amqp_basic_return_t &returned);
  void on_returned_properties(const amqp_frame_t &frame);
  void on_channel_closed(const amqp_channel_close_t &close);
  void on_asked(bool there);
  std::string about_exchange(const std::string &exchange) const;
  std::string missing_text(const std::string &exchange) const;
  void report_degraded();

  const std::shared_ptr<const RabbitConfig> config_;
  Handover handover_;

  /* From here on: the sink's thread only. */
  std::unique_ptr<Connection> connection_; /* null while disconnected */
  Time sent_at_{}, received_at_{};
  std::string blocked_;                         /* why the broker has blocked publishing; empty = it has not */
  std::map<uint64_t, Unconfirmed> unconfirmed_; /* by delivery tag */
  uint64_t last_tag_ = 0;
  std::vector<uint64_t> confirmed_; /* serials, reported together */
  std::string returned_;            /* of a basic.return whose properties follow */
  /* The broker has closed the channel: so many messages are sent one at a time, so that the one to blame is found. */
  size_t careful_left_ = 0;
  Exchanges exchanges_;
  std::deque<std::string> to_ask_;
  std::string asked_; /* the exchange that the broker was asked for last */
  bool asking_ = false;
  std::map<std::string, std::deque<Waiting>, std::less<>> waiting_; /* by exchange */
  std::string degraded_;
  StallDetector stall_detector_;
};

}  // namespace outbox::rabbitmq
