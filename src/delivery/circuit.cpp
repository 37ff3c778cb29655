#include "circuit.h"

#include <algorithm>

namespace outbox {

bool Circuit::forget_probe(uint64_t ticket) {
  auto at = std::find(probes_.begin(), probes_.end(), ticket);
  if (at == probes_.end())
    return false;
  probes_.erase(at);
  return true;
}

void Circuit::open(Time now, bool refused, int64_t wish_ms) {
  Duration first = refused ? settings_.first_refused : settings_.first_backoff;
  Duration longest = refused ? settings_.longest_refused : settings_.longest_backoff;
  backoff_ = state_ == State::Closed ? first : std::clamp(backoff_ * 2, first, longest);
  state_ = State::Open;
  refusals_ = {};
  failing_keys_.clear();
  probes_.clear(); /* from now on strangers: their failure says nothing new */
  /* Up to a quarter less, so that many workers do not probe in step. */
  retry_at_ = now + backoff_ - Duration(random_() % static_cast<uint64_t>(backoff_.count() / 4 + 1));
  retry_at_ = std::max(retry_at_, now + std::min(Duration(wish_ms), settings_.longest_wish));
}

void Circuit::close() {
  state_ = State::Closed;
  refusals_ = {};
  failing_keys_.clear();
  probes_.clear();
  width_ = 1;
}

void Circuit::down(Time now) {
  if (state_ != State::Open)
    open(now);
}

void Circuit::up() {
  close();
}

/* What refuses one event may be about that event; what refuses several, and nothing else for a minute, is not. */
bool Circuit::refused_throughout(const Completion &completion, Time now) {
  if (refusals_.n++ == 0) {
    refusals_.since = now;
    refusals_.first_key = completion.key_hash;
  }
  refusals_.one_key = refusals_.one_key && completion.key_hash != 0 && completion.key_hash == refusals_.first_key;
  return refusals_.n >= settings_.refusals && !refusals_.one_key && now - refusals_.since >= settings_.refusals_over;
}

ob_outcome Circuit::blame(const Completion &completion, bool failed_before, Time now) {
  bool refused = completion.result == Result::Refused;
  if (state_ != State::Closed) {
    if (forget_probe(completion.ticket)) {
      width_ = std::min(width_ * 2, settings_.failing_keys);
      open(now, refused, completion.retry_after_ms);
    }
    return OB_RELEASED;
  }
  if (!refused) {
    refusals_ = {};
  } else if (refused_throughout(completion, now)) {
    open(now, true, completion.retry_after_ms);
    return OB_RELEASED;
  }
  if (failed_before)
    return OB_RETRY;
  /* Without a key there is nothing that could fail twice in a row for its own sake. */
  if (completion.key_hash == 0 ||
      std::find(failing_keys_.begin(), failing_keys_.end(), completion.key_hash) == failing_keys_.end())
    failing_keys_.push_back(completion.key_hash);
  if (failing_keys_.size() < settings_.failing_keys)
    return OB_RETRY;
  open(now, refused, completion.retry_after_ms);
  return OB_RELEASED;
}

void Circuit::on_sent(uint64_t ticket) {
  failed_before_.erase(ticket);
  close();
}

ob_outcome Circuit::on_result(const Completion &completion, Time now) {
  bool failed_before = failed_before_.erase(completion.ticket) > 0;
  switch (completion.result) {
  case Result::Sent:
    close();
    return OB_SENT;
  case Result::Retry: /* the peer answered about this event: it is alive */
    close();
    return OB_RETRY;
  case Result::RetryBlameSink:
  case Result::Refused:
    return blame(completion, failed_before, now);
  case Result::SinkDown:
    if (state_ == State::Closed || forget_probe(completion.ticket))
      open(now);
    return OB_RELEASED;
  case Result::Wait:
    forget_probe(completion.ticket);
    return OB_WAIT;
  case Result::Rejected: /* may have been judged here, without the peer: it proves nothing */
    forget_probe(completion.ticket);
    return OB_REJECTED;
  case Result::Released:
    forget_probe(completion.ticket);
    return OB_RELEASED;
  }
  return OB_RELEASED;
}

uint32_t Circuit::credit(Time now) {
  if (state_ == State::Closed)
    return UINT32_MAX;
  if (state_ == State::Open) {
    if (now < retry_at_)
      return 0;
    state_ = State::HalfOpen;
  }
  return static_cast<uint32_t>(width_ - std::min(width_, probes_.size()));
}

int64_t Circuit::retry_in_ms(Time now) const {
  if (state_ != State::Open)
    return -1;
  return std::max<int64_t>(0, std::chrono::ceil<Duration>(retry_at_ - now).count());
}

void Circuit::on_submit(uint64_t ticket, bool failed_before) {
  if (failed_before)
    failed_before_.insert(ticket);
  if (state_ == State::HalfOpen)
    probes_.push_back(ticket);
}

}  // namespace outbox
