/*
 * sink.h: what a kind of sink is. A new kind is one file in sinks/ that defines a SinkKind and makes one of it; SQL
 * makes its wrapper (docs/new-sink.md, with an example). Nothing else knows its name.
 *
 * Ownership: a SinkKind lives for ever. A SinkConfig is shared, and never changes. A Sink belongs to the engine, and
 * may share its Reporter with its threads. An ob_event, and all that it points to, is the caller's: copy what is to
 * outlive the call.
 * Threads: SinkKind and SinkConfig are called from any thread, several at once; a Sink from the main thread alone; a
 * Reporter may be called from all. What the main thread calls never waits: not for a peer, a disk, or a lock that
 * somebody holds meanwhile. Threads of a sink's own begin by start_thread() (thread.h), which blocks signals there.
 * Units: lengths in bytes, times in milliseconds unless the name says otherwise.
 * Errors: BadInput for what a user can mend, std::exception for the rest; the delivery API (delivery.cpp) turns both
 * into an ob_error. A sink reports how events end; it throws from submit() only before it has taken the event.
 */
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "delivery/base/secret_mask.h"
#include "delivery/base/text_view.h"
#include "delivery/delivery.h"
#include "delivery/engine/preview.h"
#include "delivery/options/options.h"

namespace outbox {

/* How one event ended, as the sink saw it: an ob_outcome, and for three of them whose fault it is. The engine's
 * circuit makes the ob_outcome of it that the server sees: RetryBlameSink and Refused are OB_RETRY, or while the
 * circuit is open OB_RETURNED or OB_DEFERRED; SinkDown is OB_RETURNED and opens the circuit. */
enum class Outcome {
  Sent,
  Retry,          /* this event failed and may succeed later */
  RetryBlameSink, /* likewise, but the peer may be ill as a whole (5xx, timeout): many keys in a row open the circuit
                   */
  Refused,  /* likewise, but by the way the peer or this sink is set up (401, 404): it will not pass within seconds,
               and probes of an open circuit are rare */
  Deferred, /* its destination within the sink (a topic) cannot be used now; nothing else of the sink is to blame */
  Rejected, /* this event can never succeed */
  SinkDown, /* nothing gets through (connection refused, no broker, TLS, credentials): not the event's fault */
  Returned  /* never left this process */
};

struct Completion {
  uint64_t ticket = 0;
  uint64_t key_hash = 0;
  Outcome outcome = Outcome::Returned;
  int64_t retry_after_ms = -1;
  std::string error;
  ob_reason reason = OB_REASON_NONE; /* of a failure that was its own; not said: the engine takes one by `outcome` */
  bool slow_retry = false;           /* a second attempt within seconds makes no sense */
  int max_attempts = 0; /* given up after so many, if the sink's own number is not smaller; 0 = nothing said */
};

/* What became of an event that a sink was handed. False: back-pressure, it was not taken. True: it was, and its
 * completion follows. A completion: it has ended there and then. */
class Submitted {
public:
  Submitted(bool taken) : taken_(taken) {}
  Submitted(Completion ended) : taken_(true), ended_(std::move(ended)) {}
  explicit operator bool() const { return taken_; }
  std::optional<Completion> &ended() { return ended_; }

private:
  bool taken_;
  std::optional<Completion> ended_;
};

/* Where a running sink reports. Safe to call from any thread. Takes the user mapping's secrets out of all texts. */
class Reporter {
public:
  virtual ~Reporter() = default;
  virtual void complete(Completion completion) = 0;
  virtual void complete(std::vector<Completion> completions) = 0;
  /* Tickets of events that were sent: what is said most often takes the least room. */
  virtual void sent(std::vector<uint64_t> tickets) = 0;
  /* The sink as a whole went down or came back, seen apart from any event. */
  virtual void down(std::string text, ob_reason reason) = 0;
  virtual void up() = 0;
  /* Part of it is down (a topic is missing), seen apart from any event; an empty reason: no more. */
  virtual void degraded(std::string reason) = 0;
  /* What made events wait is over: those whose error begins so may go at once. */
  virtual void resumed(std::string error) = 0;
  /* Will not try again by itself: 410, wrong credentials. */
  virtual void disabled(std::string reason) = 0;
  virtual void log(ob_log_level level, std::string text) = 0;
  /* Makes the main thread call Sink::poll(). */
  virtual void wake() = 0;
  /* For a library that does that itself: the engine's eventfd, to which it writes eight bytes. */
  virtual int wake_fd() const = 0;
};

/* Parsed options. Immutable, shared by checkers and running sinks. */
class SinkConfig {
public:
  virtual ~SinkConfig() = default;
  /* Throws BadInput when the event can never be sent with these options. Only the length of the payload counts, so
   * that a caller need not render it. */
  virtual void check_event(const ob_event &event) const = 0;
  /* Asked after check_event() while an event is enqueued, and never again: throws BadInput when the event could be
   * sent but is probably a mistake. Events that are in the table already are sent whatever this says. */
  virtual void check_new_event(const ob_event & /*event*/) const {}
  virtual size_t max_payload() const { return SIZE_MAX; }
  /* What submit() would send at `now`, in Unix seconds, without any secret. Only for events that pass check_event().
   * A kind that does not say so has no rows in outbox.preview(). */
  virtual Preview preview(const ob_event & /*event*/, int64_t /*now*/) const { return {}; }
};

/* A running sink. All functions are called from the engine's (main) thread.
 *
 * Order: when an event with a key ends in anything but Sent or Rejected, every later event of that key that was taken
 * must end as Returned, reported together with it or while credit() is 0, and none of them may be sent. Later events
 * of a key whose event ends within submit() are kept back by the engine. */
class Sink {
public:
  using Time = std::chrono::steady_clock::time_point;

  /* Destroying may block (a resolver, a TLS shutdown): the engine does it on a thread of its own. */
  virtual ~Sink() = default;
  /* How many more events it takes now. */
  virtual uint32_t credit() const = 0;
  /* With credit() 0: when it may have some although nothing has ended. Time::max(): only then. */
  virtual Time credit_at() const { return Time::max(); }
  /* This process is `index` of so many that send to the same peer; `turns`, which may be null, is memory of all of
   * them for a limit that they keep together. Repeated when it changes. */
  virtual void share(size_t /*index*/, size_t /*of*/, int64_t * /*turns*/) {}
  /* Much may have gathered for the peer: it is not to get all of it at once. */
  virtual void begin_slowly() {}
  /* Takes one event (copies it), and reports exactly one Completion for its ticket later; or returns that one at
   * once. Throws BadInput for an event of which no message can be made: the engine rejects it. */
  virtual Submitted submit(const ob_event &event) = 0;
  /* After a run of submits: start what was queued. */
  virtual void flush() {}
  /* Called by ob_collect(): serve an event queue that is polled rather than threaded. Never waits. */
  virtual void poll() {}
  /* When poll() should be called although nothing has happened. */
  virtual Time check_at() const { return Time::max(); }
  /* The circuit has opened: what has not begun had better be completed as Returned, and what fails from now on, but
   * began before, too. Nothing to do for a sink whose waiting events wait well where they are. */
  virtual void pause() {}
  /* Give up: everything not on the wire is completed as Returned now. */
  virtual void release_queued() = 0;
  /* The grace is over: complete everything that is left as Returned. */
  virtual void abandon() = 0;
};

class Probe;

/* The defaults that a kind (with these options) brings when nobody says otherwise. */
struct KindDefaults {
  int max_attempts;
  const char *retry;
  std::chrono::milliseconds disable_after{0}; /* failing for so long without a success; 0 = it goes on for ever */
};

class SinkKind {
public:
  explicit SinkKind(const char *name);
  virtual ~SinkKind() = default;
  const char *name() const { return name_; }
  /* Its own options, besides the common ones. */
  virtual const std::vector<OptionSpec> &options() const = 0;
  /* A property that is not in options() may still be known (librdkafka's): true when checked and good, false when
   * unknown; throws BadInput for a bad value. */
  virtual bool check_other(ob_scope, const std::string & /*name*/, const std::string & /*value*/,
                           bool /*superuser*/) const {
    return false;
  }
  /* Names beyond options(), for the HINT of an unknown one. */
  virtual void other_names(ob_scope, std::vector<const char *> &) const {}
  /* What the options of a user mapping must be to each other. Throws BadInput. */
  virtual void check_mapping(const Options & /*mapping*/) const {}
  /* What of a mapping that parse() has taken no text of its sinks may show. Unless a kind says otherwise: the values
   * of its secret options. */
  virtual SecretMask secrets(const Options &mapping) const;
  /* Checks values and what must be present. `mapping` is null when only the server's options are known (DDL time,
   * enqueue time): then what may stand in the user mapping is not missed. */
  virtual std::shared_ptr<const SinkConfig> parse(const Options &server, const Options *mapping) const = 0;
  virtual std::unique_ptr<Sink> open(const std::string &name, std::shared_ptr<const SinkConfig> config,
                                     std::shared_ptr<Reporter> reporter) const = 0;
  /* Tries the options as a sink with them would, on a thread of the probe's, and sends no event. Returns what is then
   * to be destroyed, which may take its time: by then the steps are told. A kind that cannot says that in a step. */
  virtual std::shared_ptr<void> probe(std::shared_ptr<const SinkConfig> config, Probe &probe) const;
  /* Whether a probe that is to send a test event (Probe::sends()) does. */
  virtual bool sends_test_event() const { return false; }
  virtual KindDefaults defaults(const Options &server) const = 0;

  static const SinkKind *find(std::string_view name);
  static std::string names(); /* of all kinds, with commas */

private:
  const char *name_;
  const SinkKind *next_;
};

}  // namespace outbox
