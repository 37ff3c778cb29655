/* writer.cpp: an event's way to the server. replies.cpp has the way back. */
#include "writer.h"

namespace outbox::redis {

void Writer::forget_in_flight() {
  in_flight_.clear();
  last_entry_ = {};
  waits_in_flight_ = 0;
  any_started_ = false;
  stored_.clear();
}

void Writer::send() {
  PeerSender::send();
  if (std::exchange(any_started_, false) && config_->options.wait_replicas > 0)
    ask_replicas(Why::Entries);
}

void Writer::start(uint64_t serial, Message message) {
  using Answer = RefusedTargets::Answer;
  const Answer answer = targets_.any() ? targets_.look_up(message.stream, Clock::now()) : Answer::Send;
  if (answer == Answer::Wait || answer == Answer::Defer) {
    defer(serial, message.stream);
    return;
  }
  const bool counted = answer != Answer::Send;
  send_command({serial, std::move(message.stream), counted}, message.command.bytes(), Why::Entries);
  queue_.forget_bytes(serial);
  any_started_ = true;
}

/* Replicas have what was sent before. */
void Writer::ask_replicas(Why why) {
  send_command({}, Command({"WAIT", std::to_string(config_->options.wait_replicas), wait_timeout_ms}).bytes(), why);
  waits_in_flight_++;
}

void Writer::send_command(Sent sent, std::string_view command, Why why) {
  stall_detector_.on_submit(in_flight_.size(), Clock::now());
  in_flight_.push_back(std::move(sent));
  if (why == Why::Reply)
    connection_->answer(command);
  else
    connection_->out() += command;
}

}  // namespace outbox::redis
