/*
 * writer.h: the thread of a Redis sink. It owns the connection, sends what the queue has, and reports what the
 * server replies. It waits only for the socket and the queue together.
 *
 *   disconnected --(connected to a master, logged in)--> writing <--(WAIT: enough / too few replicas)--> blocked
 *        ^---------(connection lost, no reply for 30 s)----'
 */
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "connection.h"
#include "delivery/engine/refused_targets.h"
#include "delivery/engine/stall_detector.h"
#include "delivery/net/peer_thread.h"
#include "queued_message.h"
#include "redis_config.h"
#include "server_errors.h"

namespace outbox::redis {

class Writer final : PeerThread {
public:
  Writer(std::shared_ptr<const RedisConfig> config, std::shared_ptr<Reporter> reporter);
  ~Writer() override; /* waits for the thread, and so for a resolver */

  SendQueue &queue() { return queue_; }

private:
  /* The start of every text about a stream: deferred events are found by it when the stream can be written. */
  static constexpr const char *any_stream = "stream ";
  static std::string about_stream(const std::string &stream);

  /* A command whose reply is to come: XADD of an event, or WAIT. */
  struct Sent {
    uint64_t serial = 0; /* 0: WAIT */
    std::string stream;
    bool counted = false; /* RefusedTargets counts it: its stream was refused before */
  };

  void run_once() override;
  // ---- the connection ----
  void connect();
  void lose(const PeerError &error) override;
  Time look_at() const;
  void check_time();
  // ---- commands out ----
  void pump();
  bool send(uint64_t serial, Message &message);
  void look_at_streams();
  enum class Why { Entries, Reply }; /* a command follows from what is to be sent, or from what the server has sent */
  void ask_replicas(Why why);
  void send_command(Sent sent, std::string_view command, Why why);
  // ---- replies in (replies.cpp) ----
  void read();
  void on_reply(const redisReply &reply);
  void on_stored(Sent sent, std::string_view id);
  void on_replicas(uint64_t replicas);
  void on_refused(Sent sent, std::string_view said);
  void refuse_stream(const Sent &sent, const ServerError &error);

  const std::shared_ptr<const RedisConfig> config_;
  SendQueue queue_;

  /* From here on: the sink's thread only. */
  std::unique_ptr<Connection> connection_; /* null while disconnected */
  bool was_idle_ = false;                  /* the last connection was lost while it was idle */
  std::string blocked_;                    /* why nothing is sent: too few replicas; empty = there are enough */
  std::deque<Sent> in_flight_;             /* in the order of the replies */
  size_t waits_in_flight_ = 0;             /* WAIT commands among them */
  struct {
    std::string stream, id;
  } last_entry_;                       /* of this connection */
  std::vector<uint64_t> stored_;       /* serials of entries that the master has, and replicas perhaps */
  std::vector<uint64_t> acknowledged_; /* serials, reported together */
  RefusedTargets streams_;             /* another type has their key, or the user may not write to it */
  StallDetector stall_detector_;
};

}  // namespace outbox::redis
