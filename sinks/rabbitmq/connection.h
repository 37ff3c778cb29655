/*
 * connection.h: a connection that is logged in, with two channels for publishing with confirms and one for questions.
 * Frames go into out(), next() gives those of the broker. Belongs to one thread.
 */
#pragma once

#include <string>

#include "amqp_frames.h"
#include "delivery/net/peer_connection.h"
#include "rabbitmq_options.h"

namespace outbox::rabbitmq {

class Connection final : public PeerConnection {
public:
  explicit Connection(const RabbitOptions &options) : PeerConnection(options), options_(options) {}
  /* Says goodbye if that needs no waiting. */
  ~Connection();

  /* Connects, logs in, and opens the vhost and the channels. Waits, and throws PeerError or Cancelled. */
  void open(const Host &host, const Deadline &deadline);

  const std::string &product() const { return product_; } /* "RabbitMQ 3.10.8" */
  size_t frame_max() const { return frame_max_; }
  std::chrono::seconds heartbeat() const { return heartbeat_; }

  void send(amqp_channel_t channel, amqp_method_number_t id, void *method) {
    append_method(channel, id, method, out_);
  }
  /* Reads once what the socket has. Returns false if that was nothing. */
  bool receive() { return receive_into(reader_); }
  /* The next frame; false if none is complete. It is valid until the next call. */
  bool next(amqp_frame_t &frame);
  /* Returns the text of a connection.close, and answers it. */
  PeerError closed_by_broker(const amqp_connection_close_t &close);
  /* Waits for a method of this channel; other frames are skipped. Of another one than 0 it throws PeerError if the
   * broker closes the connection or blocks publishing. */
  amqp_frame_t wait_method(amqp_channel_t channel, const Deadline &deadline, const char *step);

  /* Appends what opens the channel. */
  void open_publishing(amqp_channel_t channel);
  void open_asking();
  void close_channel_ok(amqp_channel_t channel);

private:
  void connect(const Host &host, const Deadline &deadline);
  void log_in(const Deadline &deadline);
  void open_vhost(const Deadline &deadline);
  void open_channels(const Deadline &deadline);
  void read_start(const amqp_connection_start_t &start);
  void send_start_ok();
  template <class Method> void wait_opened(amqp_channel_t channel, const Deadline &deadline);

  const RabbitOptions &options_;
  FrameReader reader_;
  std::string product_;
  size_t frame_max_ = 131'072;
  std::chrono::seconds heartbeat_{0};
  bool open_ = false;
};

}  // namespace outbox::rabbitmq
