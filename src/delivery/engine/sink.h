/*
 * sink.h: the interface of a sink kind. A new kind is one file that defines a SinkKind, in sinks/ or in an
 * extension of its own (kind_library.h), and a foreign-data wrapper in SQL (sinks/new-sink.md has an example). No
 * other code knows its name.
 *
 * Ownership: a SinkKind is never destroyed. A SinkConfig is shared and immutable. A Sink belongs to the engine; its
 * threads may share its Reporter. An ob_event and everything that it points to belong to the caller: copy what must
 * outlive the call.
 * Threads: SinkKind and SinkConfig are called from any thread, concurrently; a Sink only from the main thread; a
 * Reporter from any thread. A function that the main thread calls never waits: not for a peer, not for a disk, not
 * for a lock that another thread holds for long. A sink starts its threads with start_thread() (thread.h), which
 * blocks signals in them.
 * Units: lengths in bytes, times in milliseconds unless the name says otherwise.
 * Errors: BadInput for what a user can correct, std::exception for the rest; kind_functions.cpp turns both into an
 * ob_error. A sink reports how events end; it throws from submit() only before it has accepted the event.
 */
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "delivery/base/secret_mask.h"
#include "delivery/base/text_view.h"
#include "delivery/kind.h"
#include "delivery/engine/advice.h"
#include "delivery/engine/preview.h"
#include "delivery/options/options.h"

namespace outbox {

/* How one event ended, as the sink saw it: an ob_outcome that also tells who is to blame. The circuit breaker turns
 * it into the ob_outcome for the server: Retry, RetryBlameSink and Refused become OB_RETRY, or OB_RETURNED or
 * OB_DEFERRED while the circuit is open; SinkDown becomes OB_RETURNED and opens the circuit. */
enum class Outcome {
  Sent,
  /* The peer refuses this event: an attempt is spent, unless it refuses the events of ten keys in a row, whatever it
   * says to them. With max_refusals 1 it refuses it for good. */
  Retry,
  RetryOwnPeer, /* as Retry, but its URL depends on the event: the answer says nothing about other events */
  /* This event failed, but the whole peer may be ill (5xx, timeout): many such keys in a row open the circuit. */
  RetryBlameSink,
  /* This event failed because of the peer's or the sink's configuration (401, 404): counts like RetryBlameSink, but a
   * user must act, so an open circuit is probed rarely. */
  Refused,
  Deferred, /* its topic cannot be used now; other topics of the sink work */
  Rejected, /* this event can never be sent, as was found without asking the peer */
  SinkDown, /* no event can be sent (connection refused, no broker, TLS, credentials): not the event's fault */
  Returned  /* not sent */
};

/* An outcome with all that is known of it. */
struct Verdict {
  Outcome outcome = Outcome::Returned;
  std::string error = {};            /* empty for Sent */
  ob_reason reason = OB_REASON_NONE; /* why it failed; OB_REASON_NONE: the engine derives one from `outcome` */
  int64_t retry_after_ms = -1;       /* the delay for which the peer asks; -1 = none */
  bool slow_retry = false;           /* a retry within seconds is pointless */
  int max_refusals = 0;              /* of Retry: as ob_completion.max_refusals */
  const char *hint = "";             /* for a person who probes the sink: the next step; static */
  bool unanswered = false;           /* it was sent and had no answer: if it is sent again, it may arrive twice */
};

/* The end of an event that submit() has accepted. */
struct Completion : Verdict {
  uint64_t ticket = 0;
  uint64_t key_hash = 0;
  std::string acknowledgement = {}; /* of Sent: what the peer has answered, for a person; may be empty */
};

/* The result of submit(). False: back-pressure, the event was not accepted. True: accepted, a completion follows. A
 * Completion: the event was accepted and has already ended. */
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

/* Through this a running sink reports. Safe to call from any thread. Masks the user mapping's secrets in all texts.
 */
class Reporter {
public:
  virtual ~Reporter() = default;
  virtual void complete(Completion completion) = 0;
  virtual void complete(std::vector<Completion> completions) = 0;
  /* Tickets of sent events: the most frequent report, so it takes the least memory. */
  virtual void sent(std::vector<uint64_t> tickets) = 0;
  /* The whole sink is down, or its peer can be reached again, independently of an event. */
  virtual void down(std::string text, ob_reason reason) = 0;
  virtual void up() = 0;
  /* Counts a failure that no event's outcome has: an event was acknowledged, and the peer has dropped it; or a
   * request failed, of which so many events were `unanswered` and are sent again by the sink itself. */
  virtual void failed(ob_reason reason, size_t unanswered) = 0;
  /* A part of the sink is down (a topic is missing), independently of an event; an empty reason: all parts work
   * again. */
  virtual void degraded(std::string reason) = 0;
  /* A cause of Deferred is over: events whose error starts with this text may be sent at once. */
  virtual void resumed(std::string error) = 0;
  /* The sink has stopped trying: HTTP 410. */
  virtual void disabled(std::string reason) = 0;
  virtual void log(ob_log_level level, std::string text) = 0;
  /* Makes the main thread call Sink::poll(). */
  virtual void wake() = 0;
  /* The eventfd of the engine, for a library that wakes by writing eight bytes to a descriptor. */
  virtual int wake_fd() const = 0;
};

/* Parsed options. Immutable, shared by checkers and running sinks. */
class SinkConfig {
public:
  virtual ~SinkConfig() = default;
  /* Throws BadInput if the event can never be sent with these options. Reads only the length of the payload, so that
   * a caller need not render it, unless max_payload() is 0. */
  virtual void check_event(const ob_event &event) const = 0;
  /* Called after check_event() while an event is enqueued, and never again. Throws BadInput if the event could be
   * sent but is probably a mistake. Events that are already in the table are sent regardless. */
  virtual void check_new_event(const ob_event & /*event*/) const {}
  virtual size_t max_payload() const { return SIZE_MAX; }
  /* An event is tried again after at most this time, whatever delay the peer asks for. */
  virtual std::chrono::milliseconds longest_delay() const { return std::chrono::hours(1); }
  /* The message that submit() would send at `now` (Unix time in seconds), without secrets. Call it only for events
   * that pass check_event(). A kind that does not implement it has no rows in outbox.preview(). */
  virtual Preview preview(const ob_event & /*event*/, int64_t /*now*/) const { return {}; }
};

/*
 * A running sink. All functions are called from the engine's (main) thread.
 *
 * Order: when an event with a key ends as anything but Sent or Rejected, every later event of that key that was
 * accepted must end as Returned without being sent, and must be reported in the same call or while credit() is 0; or,
 * with those that are accepted until then, before another event of that key is sent.
 * When an event ends within submit(), the engine itself returns the later events of its key.
 */
class Sink {
public:
  using Time = std::chrono::steady_clock::time_point;

  /* May block (a resolver, a TLS shutdown): the engine destroys sinks on a background thread. */
  virtual ~Sink() = default;
  /* How many more events the sink accepts now. */
  virtual uint32_t credit() const = 0;
  /* With credit() 0: when it may become positive even if no event ends. Time::max(): only when an event ends. */
  virtual Time credit_at() const { return Time::max(); }
  /* This process is number `index` of `of` processes that send to the same peer. `rate_clock` is memory shared by all
   * of them for a rate limit that they keep together; it may be null. Called again when it changes. */
  virtual void share(size_t /*index*/, size_t /*of*/, int64_t * /*rate_clock*/) {}
  /* Whether the acknowledgements of delivered events are kept. Called again when it changes; at first they are not.
   */
  virtual void keep_acknowledgements(bool /*keep*/) {}
  /* Start slowly: a large backlog must not reach the peer at once. */
  virtual void begin_slowly() {}
  /* The end of a pause for which the peer has asked. A time that is past: it has not. */
  virtual Time paused_until() const { return Time::min(); }
  virtual void end_pause() {}
  /* The order in which the engine submits these events: their indexes, valid until the next call. The events of a key
   * stay in order. Empty: the order in which they are. */
  virtual std::span<const uint32_t> order(const ob_event * /*events*/, size_t /*n*/) { return {}; }
  /* Accepts one event (copies it). Reports exactly one Completion for its ticket later, or returns it. Throws
   * BadInput for an event that cannot be made into a message: the engine rejects it. */
  virtual Submitted submit(const ob_event &event) = 0;
  /* Whether submit() throws all that SinkConfig::check_event() throws. Otherwise the engine calls that before. */
  virtual bool checks_events() const { return false; }
  /* Called after a series of submit() calls: start sending. */
  virtual void flush() {}
  /* Called by every ob_collect(): serve an event queue that must be polled. Never waits. */
  virtual void poll() {}
  /* When to call poll() even if nothing happens. */
  virtual Time check_at() const { return Time::max(); }
  /* The circuit has opened. The sink should complete queued events as Returned, and also what fails from now on but
   * was started before. Sinks whose queued events can wait need not do anything. */
  virtual void pause() {}
  /* The sink is being closed: complete everything that is not on the wire as Returned. */
  virtual void release_queued() = 0;
  /* The grace period is over: complete all remaining events as Returned. */
  virtual void abandon() = 0;
};

class Probe;

/* The defaults of a kind with these options. */
struct KindDefaults {
  int max_attempts;
  const char *retry;
  std::chrono::milliseconds disable_after{0}; /* disabled after failing for this long without a success; 0 = never */
  size_t largest_message = 0;                 /* in bytes, if options set it: max_payload's default is not smaller */
  /* A peer that has not answered an event for so long does not answer any more. A broker counts as stalled before. */
  std::chrono::milliseconds longest_answer{35'000};
};

class SinkKind {
public:
  explicit SinkKind(const char *name);
  virtual ~SinkKind() = default;
  const char *name() const { return name_; }
  /* The kind's own options, in addition to the common ones: those of an OptionTable (option_table.h). */
  virtual const std::vector<OptionSpec> &options() const = 0;
  /* Those of the server's options that hold the address of the sink, of which one is given: `target` in outbox.sinks.
   */
  virtual std::vector<OptionName> target_options() const = 0;
  /* Checks a property that is not in options() (one of librdkafka's): true if it is known and valid, false if
   * unknown; throws BadInput for an invalid value. */
  virtual bool check_other(ob_scope, const std::string & /*name*/, const std::string & /*value*/,
                           bool /*superuser*/) const {
    return false;
  }
  /* Appends the names that check_other() knows, for the HINT about an unknown option. */
  virtual void other_names(ob_scope, std::vector<const char *> &) const {}
  /* Checks a user mapping's options, each and together, as parse() does: when DDL gives them, without a server.
   * Throws BadInput. */
  virtual void check_mapping(const Options & /*mapping*/) const {}
  /* The secrets of a mapping that no text of its sinks may show; parse() has made `config` of it. By default the
   * values of all secret options, but for one that is also the option "user". */
  virtual SecretMask secrets(const SinkConfig &config, const Options &mapping) const;
  /* Finds typical mistakes in options that parse() has accepted, for outbox.doctor(). `mapping` is null if the sink
   * has no user mapping. */
  virtual std::vector<Advice> advise(const SinkConfig & /*config*/, const Options & /*server*/,
                                     const Options * /*mapping*/) const {
    return {};
  }
  /* Reads the options, and checks them each and together. `mapping` is null when only the server's options are known
   * (DDL time, enqueue time); options that the user mapping may contain are then not required. `owner` matters only
   * to a configuration that connects. */
  virtual std::shared_ptr<const SinkConfig> parse(const Options &server, const Options *mapping,
                                                  Owner owner = Owner::User) const = 0;
  /* By default it throws: a kind of a library that only makes messages opens no sink. */
  virtual std::unique_ptr<Sink> open(const std::string &name, std::shared_ptr<const SinkConfig> config,
                                     std::shared_ptr<Reporter> reporter) const;
  /* Tries the options as a sink would, on the probe's thread, without sending an event. If events would get through,
   * it calls Probe::can_deliver(): on request a sink is opened then for a test event (test_delivery.h). Returns an
   * object whose destruction may take long; all steps are recorded before. A kind without a probe says so in a step.
   */
  virtual std::shared_ptr<void> probe(std::shared_ptr<const SinkConfig> config, Probe &probe) const;
  virtual KindDefaults defaults(const Options &server) const = 0;
  /* Describes the client library that the kind has loaded; `out` is zero before. */
  virtual void client_library(ob_client_library & /*out*/) const {}

  static const SinkKind *find(std::string_view name);
  /* Why a kind whose library could not be loaded is not there; throws it. Returns if nothing is known of it. */
  static void throw_if_unavailable(std::string_view name);
  static bool is_unavailable(std::string_view name);
  static void set_unavailable(std::string name, BadInput why);
  static std::string names(); /* names of all kinds, separated by commas */

private:
  const char *name_;
  const SinkKind *next_;
};

}  // namespace outbox
