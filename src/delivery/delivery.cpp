/*
 * delivery.cpp: the functions of the delivery API find the library that has the kind of sink, or has made the handle,
 * and call the function of its struct (kind.h). outbox's own kinds are called in the same way.
 */
#include "delivery/delivery.h"

#include <curl/curl.h>
#include <librdkafka/rdkafka.h>
#include <openssl/crypto.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <chrono>
#include <cstring>
#include <system_error>
#include <vector>

#include "delivery/base/thread.h"
#include "delivery/engine/kind_library.h"
#include "delivery/http/network.h"
#include "delivery/kind.h"
#include "delivery/options/guarded.h"
#include "delivery/options/match.h"
#include "delivery/options/retry.h"
#include "delivery/sinks/kafka/kafka_library.h"

using namespace outbox;

/* ---- the libraries ---- */

namespace {

/* Never freed, so that any thread may read the list while the main thread adds to it. */
struct Registered {
  const ob_sink_kind *library;
  const Registered *next;
};
constinit std::atomic<const Registered *> registered = nullptr;

/* Each library is told these, also one that is registered later. Written by the main thread. */
std::string &database_name() {
  static std::string &name = *new std::string;
  return name;
}
std::string &networks() {
  static std::string &list = *new std::string;
  return list;
}

const ob_sink_kind *find_library(std::string_view kind) {
  for (const Registered *one = registered; one; one = one->next)
    if (kind == one->library->name)
      return one->library;
  return nullptr;
}

/* outbox's own functions refuse a kind that no library has, and say why it is not available. */
const ob_sink_kind &library_of(const char *kind) {
  const ob_sink_kind *found = find_library(kind);
  return found ? *found : *kinds_of_this_library();
}

template <class Handle> const ob_sink_kind &made_by(const Handle *handle) {
  return *reinterpret_cast<const ob_handle *>(handle)->library;
}

/* One engine for each library whose sinks or probes were opened. */
class Engines {
public:
  Engines() : epoll_fd_(epoll_create1(EPOLL_CLOEXEC)) {
    if (epoll_fd_ < 0)
      throw std::system_error(errno, std::generic_category(), "epoll_create1");
  }
  ~Engines() { ::close(epoll_fd_); }
  Engines(const Engines &) = delete;
  Engines &operator=(const Engines &) = delete;

  int fd() const { return epoll_fd_; }
  bool is_callers_thread() const noexcept { return caller_.is_current(); }

  /* Throws if it cannot be made. */
  ob_engine *of(const ob_sink_kind &library) {
    assert(is_callers_thread());
    for (const Part &part : parts_)
      if (part.library == &library)
        return part.engine;
    parts_.reserve(parts_.size() + 1);
    ob_error error;
    ob_engine *engine = library.engine_open(&error);
    if (!engine)
      throw BadInput(error.kind, {}, error.message, error.detail, error.hint);
    epoll_event event{};
    event.events = EPOLLIN;
    if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, library.engine_fd(engine), &event) != 0) {
      int why = errno;
      (void)library.engine_close(engine, 0);
      throw std::system_error(why, std::generic_category(), "epoll_ctl");
    }
    parts_.push_back({&library, engine});
    return engine;
  }

  /* Each call begins with another engine, so that none waits for the others. */
  size_t collect(ob_completion *out, size_t max) {
    assert(is_callers_thread());
    size_t n = 0;
    first_++;
    for (size_t i = 0; i < parts_.size() && n < max; i++) {
      const Part &part = parts_[(first_ + i) % parts_.size()];
      n += part.library->collect(part.engine, out + n, max - n);
    }
    return n;
  }

  bool next_log(ob_log_line *line) const {
    return std::any_of(parts_.begin(), parts_.end(),
                       [&](const Part &part) { return part.library->next_log(part.engine, line); });
  }

  bool close(std::chrono::milliseconds timeout) const {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point deadline = Clock::now() + timeout;
    bool gone = true;
    for (const Part &part : parts_) {
      auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      gone &= part.library->engine_close(part.engine, static_cast<int>(std::max<int64_t>(0, left.count())));
    }
    return gone;
  }

private:
  struct Part {
    const ob_sink_kind *library;
    ob_engine *engine;
  };
  const OwnThread caller_;
  std::vector<Part> parts_;
  size_t first_ = 0;
  int epoll_fd_;
};

}  // namespace

static Engines *engines_of(ob_engine *engine) {
  return reinterpret_cast<Engines *>(engine);
}

bool ob_kind_register(const char *kind, const ob_sink_kind *library, int pg_version, ob_error *error) noexcept {
  return guarded(error, false, [&] {
    if (ob_kind_is_registered(kind))
      return true;
    check_kind_fits(kind, library, pg_version);
    auto *added = new Registered{library, registered};
    library->set_database(database_name().c_str());
    library->set_networks(networks().c_str());
    registered = added;
    return true;
  });
}

void ob_kind_unavailable(const char *kind, const ob_error *why) noexcept {
  guarded(nullptr, false, [&] {
    SinkKind::set_unavailable(kind, BadInput(why->kind, {}, why->message, why->detail, why->hint));
    return true;
  });
}

bool ob_kind_is_registered(const char *kind) noexcept {
  return find_library(kind) || SinkKind::find(kind);
}

void ob_set_database(const char *name) noexcept {
  guarded(nullptr, false, [&] {
    database_name() = name;
    return true;
  });
  kinds_of_this_library()->set_database(name);
  for (const Registered *one = registered; one; one = one->next)
    one->library->set_database(name);
}

void ob_set_networks(const char *list) noexcept {
  guarded(nullptr, false, [&] {
    networks() = list ? list : "";
    return true;
  });
  kinds_of_this_library()->set_networks(list);
  for (const Registered *one = registered; one; one = one->next)
    one->library->set_networks(list);
}

/* ---- what a library does ---- */

bool ob_check_options(const char *kind, ob_scope scope, const ob_option *options, size_t n, bool superuser,
                      ob_error *error) noexcept {
  return library_of(kind).check_options(kind, scope, options, n, superuser, error);
}

bool ob_check_owner(const char *kind, const ob_option *options, size_t n, const ob_option *mapping, size_t n_mapping,
                    ob_error *error) noexcept {
  return library_of(kind).check_owner(kind, options, n, mapping, n_mapping, error);
}

size_t ob_advise(const char *kind, const char *sink, const ob_option *options, size_t n, const ob_option *mapping,
                 size_t n_mapping, ob_advice *advice, size_t max) noexcept {
  return library_of(kind).advise(kind, sink, options, n, mapping, n_mapping, advice, max);
}

size_t ob_option_names(const char *kind, ob_scope scope, const char **names, size_t max) noexcept {
  return library_of(kind).option_names(kind, scope, names, max);
}

size_t ob_target_options(const char *kind, const char **names, size_t max) noexcept {
  return library_of(kind).target_options(kind, names, max);
}

bool ob_common_options(const char *kind, const ob_option *options, size_t n, ob_common *out,
                       ob_error *error) noexcept {
  return library_of(kind).common_options(kind, options, n, out, error);
}

ob_checker *ob_checker_open(const char *kind, const ob_option *options, size_t n, ob_error *error) noexcept {
  return library_of(kind).checker_open(kind, options, n, error);
}

ob_checker *ob_checker_open_with_secrets(const char *kind, const ob_option *options, size_t n,
                                         const ob_option *mapping, size_t n_mapping, ob_error *error) noexcept {
  return library_of(kind).checker_open_with_secrets(kind, options, n, mapping, n_mapping, error);
}

bool ob_checker_check(const ob_checker *checker, const ob_event *event, ob_error *error) noexcept {
  return made_by(checker).checker_check(checker, event, error);
}

bool ob_checker_check_new(const ob_checker *checker, const ob_event *event, ob_error *error) noexcept {
  return made_by(checker).checker_check_new(checker, event, error);
}

size_t ob_checker_max_payload(const ob_checker *checker) noexcept {
  return made_by(checker).checker_max_payload(checker);
}

void ob_checker_close(ob_checker *checker) noexcept {
  if (checker)
    made_by(checker).checker_close(checker);
}

ob_preview *ob_preview_open(const ob_checker *checker, const ob_event *event, int64_t now, ob_error *error) noexcept {
  return made_by(checker).preview_open(checker, event, now, error);
}

const ob_part *ob_preview_parts(const ob_preview *preview, size_t *n) noexcept {
  return made_by(preview).preview_parts(preview, n);
}

void ob_preview_close(ob_preview *preview) noexcept {
  if (preview)
    made_by(preview).preview_close(preview);
}

/* ---- the engine ---- */

ob_engine *ob_engine_open(ob_error *error) noexcept {
  return guarded(error, static_cast<ob_engine *>(nullptr), [] { return reinterpret_cast<ob_engine *>(new Engines); });
}

int ob_engine_fd(const ob_engine *engine) noexcept {
  return reinterpret_cast<const Engines *>(engine)->fd();
}

bool ob_engine_close(ob_engine *engine, int timeout_ms) noexcept {
  bool gone = engines_of(engine)->close(std::chrono::milliseconds(timeout_ms));
  delete engines_of(engine);
  return gone;
}

/* Signals are blocked here for the threads that a kind's client library may start. */
ob_sink *ob_sink_open(ob_engine *engine, const char *name, const char *kind, const ob_option *options, size_t n,
                      const ob_option *mapping, size_t n_mapping, ob_error *error) noexcept {
  const ob_sink_kind &library = library_of(kind);
  SignalsBlocked blocked;
  ob_engine *own = guarded(error, static_cast<ob_engine *>(nullptr), [&] { return engines_of(engine)->of(library); });
  return own ? library.sink_open(own, name, kind, options, n, mapping, n_mapping, error) : nullptr;
}

void ob_sink_share(ob_sink *sink, int index, int of, int64_t *rate_clock) noexcept {
  made_by(sink).sink_share(sink, index, of, rate_clock);
}

void ob_sink_keep_acknowledgements(ob_sink *sink, bool keep) noexcept {
  made_by(sink).sink_keep_acknowledgements(sink, keep);
}

void ob_sink_begin_slowly(ob_sink *sink) noexcept {
  made_by(sink).sink_begin_slowly(sink);
}

void ob_sink_end_pause(ob_sink *sink) noexcept {
  made_by(sink).sink_end_pause(sink);
}

void ob_sink_close(ob_sink *sink, int grace_ms) noexcept {
  made_by(sink).sink_close(sink, grace_ms);
}

bool ob_sink_closed(ob_sink *sink) noexcept {
  return made_by(sink).sink_closed(sink);
}

void ob_sink_get_status(ob_sink *sink, ob_sink_status *status) noexcept {
  made_by(sink).sink_get_status(sink, status);
}

bool ob_sink_next_resumed(ob_sink *sink, char *error, size_t size) noexcept {
  return made_by(sink).sink_next_resumed(sink, error, size);
}

size_t ob_submit(ob_sink *sink, const ob_event *events, size_t n) noexcept {
  return made_by(sink).submit(sink, events, n);
}

size_t ob_collect(ob_engine *engine, ob_completion *out, size_t max) noexcept {
  return engines_of(engine)->collect(out, max);
}

ob_probe *ob_probe_start(ob_engine *engine, const char *name, const char *kind, const ob_option *options, size_t n,
                         const ob_option *mapping, size_t n_mapping, int timeout_ms, bool send, const char *topics,
                         ob_error *error) noexcept {
  const ob_sink_kind &library = library_of(kind);
  SignalsBlocked blocked;
  ob_engine *own = guarded(error, static_cast<ob_engine *>(nullptr), [&] { return engines_of(engine)->of(library); });
  return own ? library.probe_start(own, name, kind, options, n, mapping, n_mapping, timeout_ms, send, topics, error)
             : nullptr;
}

bool ob_probe_poll(const ob_probe *probe, ob_probe_step *steps, size_t max, size_t *n) noexcept {
  return made_by(probe).probe_poll(probe, steps, max, n);
}

void ob_probe_finish(ob_probe *probe) noexcept {
  made_by(probe).probe_finish(probe);
}

bool ob_next_log(ob_engine *engine, ob_log_line *line) noexcept {
  return engines_of(engine)->next_log(line);
}

/* ---- what concerns no kind ---- */

bool ob_check_networks(const char *list, ob_error *error) noexcept {
  return guarded(error, false, [&] {
    if (list && list[0] != '\0')
      parse_networks("outbox.allow_networks", list);
    return true;
  });
}

bool ob_match_pairs(const char *match, ob_match *pairs, size_t *n, char *room, ob_error *error) noexcept {
  return guarded(error, false, [&] {
    auto keep = [&room](const std::string &text) {
      ob_text kept{room, text.size()};
      room = std::copy(text.begin(), text.end(), room);
      return kept;
    };
    *n = 0;
    for (const MatchPair &pair : parse_match("match", match))
      pairs[(*n)++] = {keep(pair.name), keep(pair.value)};
    return true;
  });
}

bool ob_check_retry(const char *policy, ob_error *error) noexcept {
  return guarded(error, false, [&] {
    RetryPolicy::parse("retry", policy);
    return true;
  });
}

int64_t ob_retry_delay_ms(const char *policy, int attempts, bool slow, uint64_t random) noexcept {
  /* For a policy that cannot be parsed, though it was checked: never retry in a tight loop. */
  constexpr int64_t unreadable_policy = 60'000;
  return guarded(nullptr, unreadable_policy,
                 [&] { return int64_t(RetryPolicy::parse("retry", policy).delay(attempts, slow, random).count()); });
}

const char *ob_reason_name(ob_reason reason) noexcept {
  static constexpr std::array<const char *, OB_REASONS> names = {
      "none",         "timeout",   "connection", "dns",    "tls",     "auth",    "http_3xx",  "http_4xx", "http_5xx",
      "rate_limited", "too_large", "topic",      "broker", "blocked", "invalid", "duplicate", "other"};

  return names[reason];
}

const char *ob_library_versions(void) noexcept {
  static const std::string *const versions = guarded(nullptr, static_cast<std::string *>(nullptr), [] {
    return new std::string("librdkafka " + std::string(rd_kafka_version_str()) + ", libcurl " +
                           curl_version_info(CURLVERSION_NOW)->version + ", OpenSSL " +
                           OpenSSL_version(OPENSSL_VERSION_STRING));
  });
  return versions ? versions->c_str() : "";
}

ob_library_fitness ob_check_librdkafka(ob_error *advice) noexcept {
  return guarded(nullptr, OB_LIBRARY_FIT,
                 [&] { return check_librdkafka(rd_kafka_version(), rd_kafka_version_str(), *advice); });
}
