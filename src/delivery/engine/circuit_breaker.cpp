/*
 * circuit_breaker.cpp: opens when ten keys fail in a row, or two keys and nothing has succeeded for a second;
 * attempts of the events are then not spent. An answer that every event gets is an outage, even one that refuses the
 * event: an nginx with an expired client certificate answers 400 to everything, a proxy without its site 404 or 421.
 * So an answer that refuses an event is no success, and closes no circuit. A few such answers may be the events' own
 * fault, so two keys do not suffice. An event that has failed before does not count towards the ten: 200 failing keys
 * whose retries were due together once opened the circuit 96 times in one drain, for all other keys too. 401, 403,
 * 404 and redirects also count as an outage, but are probed at growing intervals, because a user must correct the
 * configuration.
 */
#include "delivery/engine/circuit_breaker.h"

#include <algorithm>
#include <utility>

namespace outbox {

bool CircuitBreaker::forget_probe(uint64_t ticket, Time now) {
  auto at = std::find(probes_.begin(), probes_.end(), ticket);
  if (at == probes_.end())
    return false;
  probes_.erase(at);
  look_at_ = now + settings_.quiet;
  return true;
}

void CircuitBreaker::open(Time now, bool refused, int64_t retry_after_ms) {
  Duration first = refused ? settings_.first_refused : settings_.first_backoff;
  Duration longest = refused ? settings_.longest_refused : settings_.longest_backoff;
  if (state_ == State::Closed)
    outage_began_ = failures_.any ? failures_.since : now;
  backoff_ = state_ == State::Closed ? first : std::clamp(backoff_ * 2, first, longest);
  state_ = State::Open;
  is_reachable_ = false;
  failures_ = {};
  failing_keys_.clear();
  probes_.clear(); /* their results are no longer probes */
  /* Up to a quarter shorter, so that several workers do not probe at the same time. */
  retry_at_ = now + backoff_ - Duration(random_() % static_cast<uint64_t>(backoff_.count() / 4 + 1));
  retry_at_ = std::max(retry_at_, now + std::min(Duration(retry_after_ms), settings_.longest_retry_after));
}

void CircuitBreaker::close() {
  state_ = State::Closed;
  failures_ = {};
  failing_keys_.clear();
  probes_.clear();
  max_probes_ = 1;
  lone_probes_ = 0;
  n_deferred_ = 0;
  is_reachable_ = was_reachable_ = false;
}

void CircuitBreaker::half_open(Time now) {
  state_ = State::HalfOpen;
  look_at_ = now + settings_.quiet;
}

void CircuitBreaker::down(Time now) {
  is_reachable_ = false;
  if (state_ != State::Open)
    open(now);
}

void CircuitBreaker::up(Time now) {
  if (state_ == State::Closed)
    return;
  is_reachable_ = true;
  look_at_ = now + settings_.quiet;
  if (state_ == State::Open && !std::exchange(was_reachable_, true))
    half_open(now);
}

/* The peer can be reached, and nothing has changed for a time. */
void CircuitBreaker::look_at_quiet(Time now, bool idle) {
  look_at_ = now + settings_.quiet;
  if (idle)
    close();
  else if (probes_.size() >= max_probes_)
    max_probes_ = std::min(max_probes_ * 2, settings_.most_probes);
}

void CircuitBreaker::succeeded(Time now) {
  close();
  if (!failed_keys_.empty()) {
    own_fault_.insert(failed_keys_.begin(), failed_keys_.end());
    may_spend_.merge(failed_keys_);
    failed_keys_.clear();
  }
  success_ = now;
  any_success_ = true;
}

void CircuitBreaker::note_failure(const Completion &completion, bool failed_before, Time now) {
  if (completion.key_hash == 0 ? failed_before : own_fault_.contains(completion.key_hash))
    return; /* without a key it may be the same event as before */
  if (!failures_.any)
    failures_ = {true, false, completion.key_hash, now, 0};
  else
    failures_.many_keys |= completion.key_hash == 0 || completion.key_hash != failures_.first_key;
  failures_.retry_after_ms = std::max(failures_.retry_after_ms, completion.retry_after_ms);
}

bool CircuitBreaker::nothing_succeeds(Time now) const {
  return failures_.many_keys && now - failures_.since >= settings_.alone &&
         (!any_success_ || now - success_ >= settings_.without_success);
}

/* There is little evidence for an outage, so the first probe comes after the short backoff. */
void CircuitBreaker::open_on_few(Time now) {
  open(now, false, failures_.retry_after_ms);
}

/* True when other keys have succeeded since this key's last failure. */
bool CircuitBreaker::note_failed_key(uint64_t key) {
  for (auto *keys : {&failed_keys_, &own_fault_, &may_spend_})
    if (keys->size() >= settings_.keys_remembered)
      keys->clear();
  if (key != 0)
    failed_keys_.insert(key);
  return may_spend_.erase(key) > 0;
}

/* A probe with this key has failed. True when no other key has failed since the last success, and this one has often
 * enough. Events without a key (0) cannot be told from one another, so they never do. */
bool CircuitBreaker::fails_alone(uint64_t key) {
  return key != 0 && failed_keys_.size() == 1 && ++lone_probes_ >= settings_.lone_probes;
}

ob_outcome CircuitBreaker::blame(const Completion &completion, bool failed_before, Time now) {
  bool refused = completion.outcome == Outcome::Refused;
  bool spends = note_failed_key(completion.key_hash); /* others have succeeded */
  if (state_ != State::Closed) {
    is_reachable_ = false;
    if (forget_probe(completion.ticket, now)) {
      spends |= fails_alone(completion.key_hash);
      max_probes_ = std::min(max_probes_ * 2, settings_.most_probes);
      open(now, refused, completion.retry_after_ms);
    }
    if (spends)
      return OB_RETRY;
    if (!failed_before)
      return OB_RETURNED;
    n_deferred_++;
    return OB_DEFERRED;
  }
  if (completion.outcome != Outcome::Retry) /* a few events may all be at fault themselves */
    note_failure(completion, failed_before, now);
  if (nothing_succeeds(now)) {
    open_on_few(now);
    return OB_RETURNED;
  }
  if (failed_before || own_fault_.contains(completion.key_hash))
    return OB_RETRY;
  /* Each event without a key counts: none of them can fail repeatedly on its own account. */
  if (completion.key_hash == 0 ||
      std::find(failing_keys_.begin(), failing_keys_.end(), completion.key_hash) == failing_keys_.end())
    failing_keys_.push_back(completion.key_hash);
  if (failing_keys_.size() < settings_.failing_keys)
    return OB_RETRY;
  open(now, refused, completion.retry_after_ms);
  return OB_RETURNED;
}

void CircuitBreaker::on_sent(uint64_t ticket, Time now) {
  failed_before_.erase(ticket);
  succeeded(now);
}

ob_outcome CircuitBreaker::on_result(const Completion &completion, Time now) {
  bool failed_before = failed_before_.contains(completion.ticket);
  ob_outcome outcome = note_result(completion, failed_before, now);
  failed_before_.erase(completion.ticket);
  return outcome;
}

ob_outcome CircuitBreaker::note_result(const Completion &completion, bool failed_before, Time now) {
  switch (completion.outcome) {
  case Outcome::Sent:
    succeeded(now);
    return OB_SENT;
  case Outcome::RetryOwnPeer:
    forget_probe(completion.ticket, now);
    return OB_RETRY;
  case Outcome::Retry:
  case Outcome::RetryBlameSink:
  case Outcome::Refused:
    return blame(completion, failed_before, now);
  case Outcome::SinkDown:
    is_reachable_ = false;
    if (state_ == State::Closed || forget_probe(completion.ticket, now))
      open(now);
    return OB_RETURNED;
  case Outcome::Deferred:
    forget_probe(completion.ticket, now);
    return OB_DEFERRED;
  case Outcome::Rejected: /* the event may have been rejected without asking the peer: no evidence */
    forget_probe(completion.ticket, now);
    return OB_REJECTED;
  case Outcome::Returned:
    forget_probe(completion.ticket, now);
    return OB_RETURNED;
  }
  return OB_RETURNED;
}

uint32_t CircuitBreaker::credit(Time now, bool idle) {
  if (state_ == State::Closed && nothing_succeeds(now))
    open_on_few(now);
  if (state_ == State::Closed)
    return UINT32_MAX;
  if (state_ == State::Open) {
    if (now < retry_at_)
      return 0;
    half_open(now);
  }
  if (is_reachable_ && now >= look_at_)
    look_at_quiet(now, idle);
  if (state_ == State::Closed)
    return UINT32_MAX;
  return static_cast<uint32_t>(max_probes_ - std::min(max_probes_, probes_.size()));
}

int64_t CircuitBreaker::retry_in_ms(Time now) const {
  if (state_ != State::Open)
    return -1;
  return std::max<int64_t>(0, std::chrono::ceil<Duration>(retry_at_ - now).count());
}

int64_t CircuitBreaker::defer_ms() const {
  return std::clamp(std::max(settings_.defer_each, backoff_ / 10) * n_deferred_, settings_.defer_least,
                    settings_.defer_most)
      .count();
}

void CircuitBreaker::on_submit(uint64_t ticket, bool failed_before) {
  if (failed_before)
    failed_before_.insert(ticket);
  if (state_ == State::HalfOpen)
    probes_.push_back(ticket);
}

}  // namespace outbox
