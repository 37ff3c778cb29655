/*
 * delivery.cpp: finds the library that has a kind of sink, and runs one engine for each library whose sinks are open.
 * The kind "manual" is in this library.
 */
#include "delivery/delivery.h"

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
#include "delivery/options/guarded.h"
#include "delivery/options/match.h"
#include "delivery/options/retry.h"

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
struct Configuration {
  std::string database, networks;
  uint32_t timeline = 0;

  void tell(const ob_sink_kind &library) const { library.configure(database.c_str(), timeline, networks.c_str()); }
};
Configuration &configuration() {
  static Configuration &kept = *new Configuration;
  return kept;
}

const ob_sink_kind *find_library(std::string_view kind) {
  for (const Registered *one = registered; one; one = one->next)
    if (kind == one->library->name)
      return one->library;
  return nullptr;
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
    if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, engine->fd, &event) != 0) {
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

static Engines *inside(ob_engines *engines) {
  return reinterpret_cast<Engines *>(engines);
}

/* outbox's own functions refuse a kind that no library has, and say why it is not available. What only makes messages
 * accepts options that the whole library would refuse, so it does not stand in for one that cannot be loaded. */
const ob_sink_kind *ob_kind(const char *kind) noexcept {
  const ob_sink_kind *found = find_library(kind);
  return found && !(found->messages_only && SinkKind::is_unavailable(kind)) ? found : kinds_of_this_library();
}

bool ob_kind_register(const char *kind, const ob_sink_kind *library, int pg_version, ob_error *error) noexcept {
  return guarded(error, false, [&] {
    if (library && find_library(kind) == library)
      return true;
    check_kind_fits(kind, library, pg_version);
    auto *added = new Registered{library, registered};
    configuration().tell(*library);
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

bool ob_kind_is_whole(const char *kind) noexcept {
  const ob_sink_kind *found = find_library(kind);
  return found ? !found->messages_only : SinkKind::find(kind) != nullptr;
}

/* Keeps what `change` sets for libraries that are registered later, and tells all. */
template <class Change> static void configure(Change change) noexcept {
  guarded(nullptr, false, [&] {
    change(configuration());
    return true;
  });
  configuration().tell(*kinds_of_this_library());
  for (const Registered *one = registered; one; one = one->next)
    configuration().tell(*one->library);
}

void ob_set_origin(const char *database, uint32_t timeline) noexcept {
  configure([&](Configuration &kept) {
    kept.database = database ? database : "";
    kept.timeline = timeline;
  });
}

void ob_set_networks(const char *list) noexcept {
  configure([&](Configuration &kept) { kept.networks = list ? list : ""; });
}

/* ---- the engines ---- */

ob_engines *ob_engines_open(ob_error *error) noexcept {
  return guarded(error, static_cast<ob_engines *>(nullptr),
                 [] { return reinterpret_cast<ob_engines *>(new Engines); });
}

int ob_engines_fd(const ob_engines *engines) noexcept {
  return reinterpret_cast<const Engines *>(engines)->fd();
}

bool ob_engines_close(ob_engines *engines, int timeout_ms) noexcept {
  bool gone = inside(engines)->close(std::chrono::milliseconds(timeout_ms));
  delete inside(engines);
  return gone;
}

size_t ob_collect(ob_engines *engines, ob_completion *out, size_t max) noexcept {
  return inside(engines)->collect(out, max);
}

bool ob_next_log(ob_engines *engines, ob_log_line *line) noexcept {
  return inside(engines)->next_log(line);
}

/* What `open` makes with the engine of the kind's library. Signals are blocked for the threads that a kind's client
 * library may start. */
template <class Open> static auto with_engine(ob_engines *engines, const char *kind, ob_error *error, Open open) {
  const ob_sink_kind &library = *ob_kind(kind);
  SignalsBlocked blocked;
  ob_engine *own = guarded(error, static_cast<ob_engine *>(nullptr), [&] { return inside(engines)->of(library); });
  return own ? open(library, own) : nullptr;
}

ob_sink *ob_sink_open(ob_engines *engines, const char *name, const char *kind, const ob_sink_options *given,
                      ob_error *error) noexcept {
  return with_engine(engines, kind, error, [&](const ob_sink_kind &library, ob_engine *engine) {
    return library.sink_open(engine, name, kind, given, error);
  });
}

ob_probe *ob_probe_start(ob_engines *engines, const char *name, const char *kind, const ob_sink_options *given,
                         int timeout_ms, bool send, const char *topics, ob_error *error) noexcept {
  return with_engine(engines, kind, error, [&](const ob_sink_kind &library, ob_engine *engine) {
    return library.probe_start(engine, name, kind, given, timeout_ms, send, topics, error);
  });
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
    for (const auto &[name, value] : parse_match("match", match))
      pairs[(*n)++] = {keep(name), keep(value)};
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
