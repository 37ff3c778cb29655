/*
 * replies.cpp: what the server's replies mean for events in flight. They come in the order of the commands.
 *
 * If too few replicas have an entry, it is in the master's stream nevertheless: to send it again would double it. So
 * the sink sends WAIT again until enough replicas have it, and sends no other entries meanwhile.
 */
#include "delivery/base/clean_text.h"
#include "writer.h"

namespace outbox::redis {

std::string Writer::about_stream(const std::string &stream) {
  return any_stream + in_quotes(stream) + " ";
}

void Writer::read() {
  for (int n = 0; n < PeerConnection::reads_in_turn && connection_->receive(); n++) {
    while (Reply reply = connection_->next()) {
      on_reply(*reply);
      stall_detector_.on_acknowledgement(Clock::now()); /* a part of one is none */
    }
    succeed(queue_, acknowledged_);
  }
}

void Writer::on_reply(const redisReply &reply) {
  if (in_flight_.empty())
    throw PeerError("connect", OB_REASON_BROKER, "the server " + connection_->peer() + " replies to nothing");
  Sent sent = std::move(in_flight_.front());
  in_flight_.pop_front();
  waits_in_flight_ -= sent.serial == 0;
  if (is_error(reply))
    on_refused(std::move(sent), text_of(reply));
  else if (const auto replicas = number_of(reply); sent.serial == 0 && replicas)
    on_replicas(*replicas);
  else if (sent.serial != 0 && is_entry_id(reply))
    on_stored(std::move(sent), text_of(reply));
  else /* which reply belongs to which command is not known any more */
    throw PeerError("connect", OB_REASON_BROKER,
                    "the server " + connection_->peer() + " answers " + (sent.serial == 0 ? "WAIT" : "XADD") +
                        " with " + kind_of(reply) + (sent.serial == 0 ? "" : ", not with the id of an entry"),
                    "is this a Redis server, or something between that changes its replies?");
}

/* Replies have no numbers, so one that comes twice would count for the next entry, too. But ids grow. */
void Writer::on_stored(Sent sent, std::string_view id) {
  if (last_entry_.stream == sent.stream && last_entry_.id == id)
    throw PeerError("connect", OB_REASON_BROKER,
                    "the server " + connection_->peer() + " gives two entries of " + about_stream(sent.stream) +
                        "the same id",
                    "is there something between that repeats its replies?");
  last_entry_.stream = sent.stream;
  last_entry_.id = id;
  if (queue_.keeps_acknowledgements())
    queue_.acknowledged(sent.serial, "entry " + std::string(id));
  (config_->options.wait_replicas > 0 ? stored_ : acknowledged_).push_back(sent.serial);
  if (streams_.any() && streams_.passed(sent.stream, sent.counted, Clock::now()))
    reporter_->resumed(any_stream);
}

void Writer::on_replicas(uint64_t replicas) {
  if (replicas >= config_->options.wait_replicas) {
    acknowledged_.insert(acknowledged_.end(), stored_.begin(), stored_.end());
    stored_.clear();
    if (!blocked_.empty()) {
      blocked_.clear();
      report_up();
    }
    return;
  }
  if (waits_in_flight_ == 0)
    ask_replicas(Why::Reply);
  if (!blocked_.empty())
    return;
  blocked_ = "only " + std::to_string(replicas) + " of " + std::to_string(config_->options.wait_replicas) +
             (replicas == 1 ? " replicas has" : " replicas have") + " the last entries after " +
             std::to_string(config_->options.wait_timeout.count()) + " ms: start replicas of " + connection_->peer() +
             ", or lower option wait_replicas";
  report_down(blocked_, OB_REASON_BROKER);
  queue_.halt(blocked_);
}

void Writer::on_refused(Sent sent, std::string_view said) {
  ServerError error = read_error(said);
  if (sent.serial == 0 || error.fault == Fault::Host)
    throw PeerError("connect", error.reason, "the server " + connection_->peer() + " refuses entries: " + error.text);
  switch (error.fault) {
  case Fault::Stream:
    refuse_stream(sent, error);
    return;
  case Fault::Event:
    queue_.refuse(sent.serial, "the server refuses the entry: " + error.text, error.reason);
    break;
  case Fault::Server:
    queue_.fail(sent.serial, Outcome::SinkDown, "the server refuses entries: " + error.text, error.reason);
    break;
  case Fault::Unknown:
  case Fault::Host:
    queue_.fail(sent.serial, Outcome::RetryBlameSink,
                about_stream(sent.stream) + "was refused an entry: " + error.text, error.reason);
    break;
  }
  streams_.ended(sent.stream, sent.counted);
}

void Writer::refuse_stream(const Sent &sent, const ServerError &error) {
  const std::string problem = about_stream(sent.stream) + "cannot be written: " + error.text;
  const Time now = Clock::now();
  if (streams_.refused(sent.stream, problem, error.reason, sent.counted, now))
    warn_degraded(streams_.summary());
  queue_.fail(sent.serial, Outcome::Deferred, problem, error.reason,
              streams_.wait(sent.stream, now, sent.counted).count());
}

}  // namespace outbox::redis
