/*
 * publisher.h: the thread of a NATS sink. It owns the connection, publishes what the queue has, and reports what
 * the streams answer. It waits only for the socket and the queue together.
 *
 *   disconnected --(connected, logged in)--> publishing
 *        ^------------(connection lost, no acknowledgement for 30 s)--'
 */
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "connection.h"
#include "delivery/engine/refused_targets.h"
#include "delivery/engine/stall_detector.h"
#include "delivery/net/peer_thread.h"
#include "queued_message.h"
#include "nats_config.h"

namespace outbox::nats {

class Publisher final : PeerThread {
public:
  Publisher(std::shared_ptr<const NatsConfig> config, std::shared_ptr<Reporter> reporter);
  ~Publisher() override; /* waits for the thread, and so for a resolver */

  SendQueue &queue() { return queue_; }

private:
  /* The start of every text about a subject. */
  static constexpr const char *any_subject = "subject \"";

  /* A message that has been published, and not acknowledged. */
  struct InFlight {
    uint64_t serial;
    std::string subject;
    Time sent_at;
    bool counted; /* RefusedTargets counts it: its subject was refused before */
    bool is_new;  /* no connection before this one can have sent it */
  };
  struct Waiting {
    uint64_t serial;
    Message message;
  };

  void run_once() override;
  // ---- the connection ----
  void connect();
  void lose(const PeerError &error) override;
  Time look_at() const;
  void check_time();
  // ---- messages out ----
  void pump();
  void start(uint64_t serial, Message message);
  void publish(uint64_t serial, Message &message, bool counted);
  void defer(uint64_t serial, const std::string &subject);
  void send_waiting();
  void look_at_subjects();
  // ---- answers ----
  void read();
  void on_operation(const Operation &operation);
  void on_message(const Operation &message);
  void on_permission_error(std::string_view error);
  void on_stored(const InFlight &message, std::string_view answer, bool duplicate);
  void on_foreign_duplicate(std::string_view answer);
  void on_rejected(const InFlight &message, const std::string &why, ob_reason reason);
  void on_refused(const InFlight &message, const std::string &why, ob_reason reason);
  Time ask_at() const;
  void ask_if_unanswered(Time now);
  void give_up_unanswered(Time now);
  void give_up_oldest();
  std::string about_subject(const std::string &subject) const;

  const std::shared_ptr<const NatsConfig> config_;
  SendQueue queue_;

  /* From here on: the sink's thread only. */
  std::unique_ptr<Connection> connection_; /* null while disconnected */
  int64_t connected_at_us_ = 0;            /* Unix time */
  bool told_of_duplicate_ = false;
  Time received_at_{}, acknowledged_at_{};
  Time alive_at_{};                        /* when something was received, or left a full socket */
  uint64_t acknowledged_up_to_ = 0;        /* the server has read all messages before this one */
  bool pinged_ = false;                    /* the server has been asked for a sign of life */
  Time asked_at_{};                        /* the same, because nothing is acknowledged */
  std::map<uint64_t, InFlight> in_flight_; /* by number, so the oldest comes first */
  uint64_t last_number_ = 0;
  std::vector<uint64_t> stored_; /* serials, reported together */
  RefusedTargets subjects_;
  std::map<std::string, std::deque<Waiting>, std::less<>> waiting_; /* by subject; none is empty */
  size_t n_waiting_ = 0;
  StallDetector stall_detector_;
};

}  // namespace outbox::nats
