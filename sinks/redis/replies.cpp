/*
 * replies.cpp: what the server's replies mean for events in flight. They come in the order of the commands.
 *
 * If too few replicas have an entry, it is in the master's stream nevertheless: to send it again would double it. So
 * the sink sends WAIT again until enough replicas have it, and sends no other entries meanwhile.
 */
#include "delivery/base/clean_text.h"
#include "writer.h"

namespace outbox::redis {

std::string Writer::about(const std::string &stream) const {
  return "stream " + in_quotes(stream) + " ";
}

void Writer::on_received() {
  while (Reply reply = connection_->next()) {
    on_reply(*reply);
    stall_detector_.on_acknowledgement(received_at_); /* a part of one is none */
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
                    "the server " + connection_->peer() + " gives two entries of " + about(sent.stream) +
                        "the same id",
                    "is there something between that repeats its replies?");
  last_entry_.stream = sent.stream;
  last_entry_.id = id;
  if (queue_.keeps_acknowledgements())
    queue_.acknowledged(sent.serial, "entry " + std::string(id));
  (config_->options.wait_replicas > 0 ? stored_ : acknowledged_).push_back(sent.serial);
  passed(sent.stream, sent.counted);
}

void Writer::on_replicas(uint64_t replicas) {
  if (replicas >= config_->options.wait_replicas) {
    acknowledged_.insert(acknowledged_.end(), stored_.begin(), stored_.end());
    stored_.clear();
    unblock();
    return;
  }
  if (waits_in_flight_ == 0)
    ask_replicas(Why::Reply);
  if (!blocked_.empty())
    return;
  block("only " + std::to_string(replicas) + " of " + std::to_string(config_->options.wait_replicas) +
        (replicas == 1 ? " replicas has" : " replicas have") + " the last entries after " + wait_timeout_ms +
        " ms: start replicas of " + connection_->peer() + ", or lower option wait_replicas");
}

void Writer::on_refused(Sent sent, std::string_view said) {
  ServerError error = read_error(said);
  if (sent.serial == 0 || error.fault == Fault::Host)
    throw PeerError("connect", error.reason, "the server " + connection_->peer() + " refuses entries: " + error.text);
  switch (error.fault) {
  case Fault::Stream:
    refuse(sent.serial, sent.stream, "cannot be written: " + error.text, error.reason, sent.counted);
    return;
  case Fault::Event:
    queue_.refuse(sent.serial, "the server refuses the entry: " + error.text, error.reason);
    break;
  case Fault::Server:
    queue_.fail(sent.serial, Outcome::SinkDown, "the server refuses entries: " + error.text, error.reason);
    break;
  case Fault::Unknown:
  case Fault::Host:
    queue_.fail(sent.serial, Outcome::RetryBlameSink, about(sent.stream) + "was refused an entry: " + error.text,
                error.reason);
    break;
  }
  targets_.ended(sent.stream, sent.counted);
}

}  // namespace outbox::redis
