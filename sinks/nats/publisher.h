/* publisher.h: the thread of a NATS sink: publishes messages, and reports what the streams answer. */
#pragma once

#include <deque>
#include <map>
#include <string>

#include "connection.h"
#include "delivery/net/peer_sender.h"
#include "nats_message.h"

namespace outbox::nats {

class Publisher final : public PeerSender<NatsConfig, Connection, Message> {
public:
  using PeerSender::PeerSender;

private:
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
  using WaitingMessages = std::map<std::string, std::deque<Waiting>>; /* by subject; none is empty */

  void on_connected() override;
  void forget_in_flight() override;
  size_t in_flight() const override { return in_flight_.size(); }
  Time look_at() const override;
  void check_time(Time now) override;
  std::string about(const std::string &subject) const override;
  // ---- messages out ----
  void send() override;
  void start(uint64_t serial, Message message) override;
  void publish(uint64_t serial, Message &message, bool counted);
  WaitingMessages::iterator send_waiting(WaitingMessages::iterator at);
  // ---- answers (answers.cpp) ----
  void on_received() override;
  void on_message(const Operation &message);
  void on_permission_error(std::string_view error);
  void on_stored(const InFlight &message, std::string_view answer, bool duplicate);
  void on_foreign_duplicate(std::string_view answer);
  void note_answer(uint64_t number);
  void refuse(const InFlight &message, const std::string &why, ob_reason reason);
  Time ask_at() const;
  void ask_if_unanswered(Time now);
  void give_up_unanswered(Time now);
  void give_up_oldest();

  int64_t connected_at_us_ = 0; /* Unix time */
  bool told_of_duplicate_ = false;
  Time acknowledged_at_{};
  uint64_t acknowledged_up_to_ = 0;        /* the server has read all messages before this one */
  bool pinged_ = false;                    /* the server has been asked for a sign of life */
  Time asked_at_{};                        /* the same, because nothing is acknowledged */
  std::map<uint64_t, InFlight> in_flight_; /* by number, so the oldest comes first */
  uint64_t last_number_ = 0;
  WaitingMessages waiting_;
  size_t n_waiting_ = 0;
};

}  // namespace outbox::nats
