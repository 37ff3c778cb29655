/*
 * writer.h: the thread of a Redis sink: sends entries, and reports what the server replies. It is blocked while too
 * few replicas have the last entries.
 */
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "connection.h"
#include "delivery/net/peer_sender.h"
#include "entry.h"
#include "server_errors.h"

namespace outbox::redis {

class Writer final : public PeerSender<RedisConfig, Connection, Message> {
public:
  using PeerSender::PeerSender;

private:
  /* A command whose reply is to come: XADD of an event, or WAIT. */
  struct Sent {
    uint64_t serial = 0; /* 0: WAIT */
    std::string stream;
    bool counted = false; /* RefusedTargets counts it: its stream was refused before */
  };

  void forget_in_flight() override;
  bool closes_idle_connections() const override { return true; } /* `timeout` */
  size_t in_flight() const override { return in_flight_.size(); }
  std::string about(const std::string &stream) const override;
  // ---- commands out ----
  void send() override;
  void start(uint64_t serial, Message message) override;
  enum class Why { Entries, Reply }; /* a command follows from what is to be sent, or from what the server has sent */
  void ask_replicas(Why why);
  void send_command(Sent sent, std::string_view command, Why why);
  // ---- replies in (replies.cpp) ----
  void on_received() override;
  void on_reply(const redisReply &reply);
  void on_stored(Sent sent, std::string_view id);
  void on_replicas(uint64_t replicas);
  void on_refused(Sent sent, std::string_view said);

  std::deque<Sent> in_flight_; /* in the order of the replies */
  size_t waits_in_flight_ = 0; /* WAIT commands among them */
  bool any_started_ = false;   /* entries that no WAIT follows yet */
  struct {
    std::string stream, id;
  } last_entry_;                 /* of this connection */
  std::vector<uint64_t> stored_; /* serials of entries that the master has, and replicas perhaps */
};

}  // namespace outbox::redis
