/*
 * delivery.cpp: the functions of the delivery API. Each converts every exception into its return value: an
 * exception that left the library would terminate the process. Memory is returned to the operating system only when
 * more than 16 MB of it are free: when each free block was returned at once, page faults took a tenth of the main
 * thread's time (5.3 µs per event instead of 4.1 to 4.4). The price: a hanging broker with 3,000 events of 100 kB
 * costs 58 MB instead of 50.
 */
#include "delivery/delivery.h"

#include <curl/curl.h>
#include <librdkafka/rdkafka.h>
#include <malloc.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include "delivery/base/text.h"
#include "delivery/engine/engine.h"
#include "delivery/engine/kind_library.h"
#include "delivery/engine/probe.h"
#include "delivery/engine/sink_options.h"
#include "delivery/http/network.h"
#include "delivery/options/match.h"
#include "delivery/options/retry.h"
#include "delivery/sinks/kafka/kafka_library.h"

using namespace outbox;

struct ob_checker {
  std::shared_ptr<const SinkConfig> config;
};
struct ob_probe {
  std::shared_ptr<Probe> probe;
};

struct ob_preview {
  Preview parts;
  std::vector<ob_part> plain; /* points into `parts` */
};

/* The opaque handles of the API are pointers to these classes. */
static Engine *inside(ob_engine *engine) {
  return reinterpret_cast<Engine *>(engine);
}
static const Engine *inside(const ob_engine *engine) {
  return reinterpret_cast<const Engine *>(engine);
}
static Runner *inside(ob_sink *sink) {
  return reinterpret_cast<Runner *>(sink);
}

static void fill(ob_error *error, ob_error_kind kind, std::string_view subject, std::string_view message,
                 std::string_view detail, std::string_view hint) noexcept {
  if (!error)
    return;
  error->kind = kind;
  copy_text(error->subject, subject);
  copy_text(error->message, message);
  copy_text(error->detail, detail);
  copy_text(error->hint, hint);
}

/* Runs `body`. An exception fills *error, and the result is `failed`. */
template <class Value, class Body> static Value guarded(ob_error *error, Value failed, Body body) noexcept {
  try {
    Value value = body();
    fill(error, OB_OK, {}, {}, {}, {});
    return value;
  } catch (const BadInput &bad) {
    fill(error, bad.kind, bad.subject, bad.what(), bad.detail, bad.hint);
  } catch (const std::bad_alloc &) {
    fill(error, OB_INTERNAL, {}, "out of memory", {}, {});
  } catch (const std::exception &other) {
    fill(error, OB_INTERNAL, {}, other.what(), {}, {});
  } catch (...) {
    fill(error, OB_INTERNAL, {}, "unexpected failure in the delivery library", {}, {});
  }
  return failed;
}

/* ---- kinds in libraries of their own ---- */

bool ob_kind_register(const char *kind, const ob_kind_build *build, void (*make_kind)(void),
                      ob_error *error) noexcept {
  return guarded(error, false, [&] {
    if (!SinkKind::find(kind)) {
      check_kind_build(kind, *build);
      make_kind();
      check_kind_was_made(kind);
    }
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
  return SinkKind::find(kind) != nullptr;
}

/* ---- options ---- */

bool ob_check_options(const char *kind, ob_scope scope, const ob_option *options, size_t n, bool superuser,
                      ob_error *error) noexcept {
  return guarded(error, false, [&] {
    const SinkKind &sink = sink_kind(kind);
    Options given = to_options(options, n);
    if (scope == OB_SERVER) {
      check_options(sink, scope, given, superuser);
      sink.parse(given, nullptr);
    } else {
      check_mapping(sink, given, superuser);
    }
    return true;
  });
}

bool ob_check_networks(const char *list, ob_error *error) noexcept {
  return guarded(error, false, [&] {
    if (list && list[0] != '\0')
      parse_networks("outbox.allow_networks", list);
    return true;
  });
}

bool ob_check_owner(const char *kind, const ob_option *options, size_t n, const ob_option *mapping, size_t n_mapping,
                    ob_error *error) noexcept {
  return guarded(error, false, [&] {
    check_owner(sink_kind(kind), to_options(options, n), to_options(mapping, n_mapping));
    return true;
  });
}

size_t ob_option_names(const char *kind, ob_scope scope, const char **names, size_t max) noexcept {
  return guarded(nullptr, size_t(0), [&] {
    const SinkKind &sink = sink_kind(kind);
    std::vector<const char *> found, others;
    for (const auto *specs : {&common_options(), &sink.options()})
      for (const OptionSpec &spec : *specs)
        if (scope == OB_SERVER ? spec.in_server : spec.in_mapping)
          found.push_back(spec.name);
    sink.other_names(scope, others);
    std::copy_if(others.begin(), others.end(), std::back_inserter(found), [&](std::string_view other) {
      return std::none_of(found.begin(), found.end(), [&](std::string_view name) { return name == other; });
    });
    size_t n = std::min(max, found.size());
    std::copy_n(found.begin(), n, names);
    return n;
  });
}

bool ob_common_options(const char *kind, const ob_option *options, size_t n, ob_common *out,
                       ob_error *error) noexcept {
  return guarded(error, false, [&] {
    const SinkKind &sink = sink_kind(kind);
    KindDefaults defaults = sink.defaults(to_options(options, n));
    *out = {true, false, 0, -1, nullptr, defaults.max_attempts, defaults.retry, defaults.disable_after.count()};
    for (size_t i = 0; i < n; i++) {
      std::string name = options[i].name;
      const char *value = options[i].value ? options[i].value : "";
      for (const OptionSpec &spec : common_options())
        if (name == spec.name && spec.check)
          spec.check(name, value);
      if (name == "ordered")
        out->ordered = parse_bool(name, value);
      else if (name == "on_dead_letter")
        out->block_on_dead_letter = parse_on_dead_letter(name, value);
      else if (name == "retry")
        out->retry = value;
      else if (name == "max_attempts")
        out->max_attempts = static_cast<int>(parse_int(name, value, 1, INT32_MAX));
      else if (name == "retention")
        out->retention_ms =
            parse_duration(name, value, std::chrono::milliseconds(0), std::chrono::milliseconds::max()).count();
    }
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
  constexpr int64_t unreadable_policy =
      60'000; /* for a policy that cannot be parsed, though it was checked: never retry in a tight loop */
  return guarded(nullptr, unreadable_policy,
                 [&] { return int64_t(RetryPolicy::parse("retry", policy).delay(attempts, slow, random).count()); });
}

ob_checker *ob_checker_open(const char *kind, const ob_option *options, size_t n, ob_error *error) noexcept {
  return guarded(error, static_cast<ob_checker *>(nullptr), [&] {
    auto config = parse_options(sink_kind(kind), to_options(options, n), nullptr);
    return new ob_checker{std::move(config)};
  });
}

ob_checker *ob_checker_open_with_secrets(const char *kind, const ob_option *options, size_t n,
                                         const ob_option *mapping, size_t n_mapping, ob_error *error) noexcept {
  return guarded(error, static_cast<ob_checker *>(nullptr), [&] {
    Options secrets = to_options(mapping, n_mapping);
    return new ob_checker{parse_options(sink_kind(kind), to_options(options, n), &secrets)};
  });
}

bool ob_checker_check(const ob_checker *checker, const ob_event *event, ob_error *error) noexcept {
  return guarded(error, false, [&] {
    checker->config->check_event(*event);
    return true;
  });
}

bool ob_checker_check_new(const ob_checker *checker, const ob_event *event, ob_error *error) noexcept {
  return guarded(error, false, [&] {
    checker->config->check_event(*event);
    checker->config->check_new_event(*event);
    return true;
  });
}

size_t ob_checker_max_payload(const ob_checker *checker) noexcept {
  return guarded(nullptr, SIZE_MAX, [&] { return checker->config->max_payload(); });
}

void ob_checker_close(ob_checker *checker) noexcept {
  delete checker;
}

static ob_part to_plain(const PreviewPart &from) {
  ob_part part{from.part, {}, {}, {}};
  if (!from.name.empty())
    part.name = {from.name.data(), from.name.size()};
  if (from.bytes)
    part.bytes = {from.bytes->data(), from.bytes->size()};
  else if (!from.text.empty())
    part.text = {from.text.data(), from.text.size()};
  return part;
}

ob_preview *ob_preview_open(const ob_checker *checker, const ob_event *event, int64_t now, ob_error *error) noexcept {
  return guarded(error, static_cast<ob_preview *>(nullptr), [&] {
    checker->config->check_event(*event);
    auto preview = std::make_unique<ob_preview>();
    preview->parts = checker->config->preview(*event, now);
    for (const PreviewPart &part : preview->parts)
      preview->plain.push_back(to_plain(part));
    return preview.release();
  });
}

const ob_part *ob_preview_parts(const ob_preview *preview, size_t *n) noexcept {
  *n = preview->plain.size();
  return preview->plain.data();
}

void ob_preview_close(ob_preview *preview) noexcept {
  delete preview;
}

/* ---- the engine ---- */

ob_engine *ob_engine_open(ob_error *error) noexcept {
  return guarded(error, static_cast<ob_engine *>(nullptr), [] {
    /* Call before the first thread starts. One arena per thread would keep the memory of every burst. glibc's dynamic
     * thresholds would keep too much memory, and low thresholds would fault the same pages in again in every round.
     */
    mallopt(M_ARENA_MAX, 2);
    mallopt(M_MMAP_THRESHOLD, 16 * 1024 * 1024);
    mallopt(M_TRIM_THRESHOLD, 16 * 1024 * 1024);
    return reinterpret_cast<ob_engine *>(new Engine);
  });
}

int ob_engine_fd(const ob_engine *engine) noexcept {
  return inside(engine)->fd();
}

bool ob_engine_close(ob_engine *engine, int timeout_ms) noexcept {
  bool gone = guarded(nullptr, false, [&] { return inside(engine)->close(std::chrono::milliseconds(timeout_ms)); });
  delete inside(engine);
  return gone;
}

ob_sink *ob_sink_open(ob_engine *engine, const char *name, const char *kind, const ob_option *options, size_t n,
                      const ob_option *mapping, size_t n_mapping, ob_error *error) noexcept {
  return guarded(error, static_cast<ob_sink *>(nullptr), [&] {
    const SinkKind &sink = sink_kind(kind);
    Options secrets = to_options(mapping, n_mapping);
    Options server = to_options(options, n);
    auto config = parse_options(sink, server, &secrets);
    const std::string *on_dead_letter = find_option(server, "on_dead_letter");
    bool blocks_on_dead_letter = on_dead_letter && parse_on_dead_letter("on_dead_letter", *on_dead_letter);
    return reinterpret_cast<ob_sink *>(
        inside(engine)->open(name, sink, std::move(config), blocks_on_dead_letter, sink.secrets(secrets)));
  });
}

void ob_sink_share(ob_sink *sink, int index, int of, int64_t *rate_clock) noexcept {
  guarded(nullptr, false, [&] {
    inside(sink)->share(static_cast<size_t>(index), static_cast<size_t>(of), rate_clock);
    return true;
  });
}

void ob_sink_keep_acknowledgements(ob_sink *sink, bool keep) noexcept {
  guarded(nullptr, false, [&] {
    inside(sink)->keep_acknowledgements(keep);
    return true;
  });
}

void ob_sink_begin_slowly(ob_sink *sink) noexcept {
  guarded(nullptr, false, [&] {
    inside(sink)->begin_slowly();
    return true;
  });
}

void ob_sink_end_pause(ob_sink *sink) noexcept {
  guarded(nullptr, false, [&] {
    inside(sink)->end_pause();
    return true;
  });
}

void ob_sink_close(ob_sink *sink, int grace_ms) noexcept {
  guarded(nullptr, false, [&] {
    inside(sink)->close(std::chrono::milliseconds(grace_ms));
    return true;
  });
}

bool ob_sink_closed(ob_sink *sink) noexcept {
  return guarded(nullptr, false, [&] {
    Runner *runner = inside(sink);
    if (!runner->finished())
      return false;
    runner->engine().forget(runner);
    return true;
  });
}

void ob_sink_get_status(ob_sink *sink, ob_sink_status *status) noexcept {
  *status = {OB_SINK_OK, 0, -1, -1, 0, 0, 0, {}, {}};
  guarded(nullptr, false, [&] {
    inside(sink)->status(*status);
    return true;
  });
}

const char *ob_reason_name(ob_reason reason) noexcept {
  static constexpr std::array<const char *, OB_REASONS> names = {
      "none",     "timeout",      "connection", "dns",   "tls",    "auth",    "http_3xx", "http_4xx",
      "http_5xx", "rate_limited", "too_large",  "topic", "broker", "blocked", "invalid",  "other"};

  return names[reason];
}

bool ob_sink_next_resumed(ob_sink *sink, char *error, size_t size) noexcept {
  return guarded(nullptr, false, [&] {
    std::string text;
    if (size == 0 || !inside(sink)->next_resumed(text))
      return false;
    size_t length = utf8_prefix(text, size - 1);
    memcpy(error, text.data(), length);
    error[length] = '\0';
    return true;
  });
}

size_t ob_submit(ob_sink *sink, const ob_event *events, size_t n) noexcept {
  return guarded(nullptr, size_t(0), [&] { return inside(sink)->submit(events, n); });
}

ob_probe *ob_probe_start(ob_engine *engine, const char *name, const char *kind, const ob_option *options, size_t n,
                         const ob_option *mapping, size_t n_mapping, int timeout_ms, bool send, const char *topics,
                         ob_error *error) noexcept {
  return guarded(error, static_cast<ob_probe *>(nullptr), [&] {
    return new ob_probe{inside(engine)->probe(name, sink_kind(kind), to_options(options, n),
                                              to_options(mapping, n_mapping), std::chrono::milliseconds(timeout_ms),
                                              send, topics)};
  });
}

bool ob_probe_poll(const ob_probe *probe, ob_probe_step *steps, size_t max, size_t *n) noexcept {
  *n = 0;
  return guarded(nullptr, false, [&] {
    std::vector<ProbeStep> found;
    bool done = probe->probe->poll(found);
    for (size_t i = 0; i < std::min(max, found.size()); i++) {
      ob_probe_step &step = steps[(*n)++];
      step.ok = found[i].ok;
      step.milliseconds = found[i].ms.value_or(0);
      copy_text(step.name, found[i].name);
      copy_text(step.message, found[i].message);
      copy_text(step.hint, found[i].hint);
    }
    return done;
  });
}

void ob_probe_finish(ob_probe *probe) noexcept {
  probe->probe->cancel();
  delete probe;
}

size_t ob_collect(ob_engine *engine, ob_completion *out, size_t max) noexcept {
  size_t n = 0;
  guarded(nullptr, false, [&] {
    inside(engine)->collect(out, max, n);
    return true;
  });
  return n;
}

bool ob_next_log(ob_engine *engine, ob_log_line *line) noexcept {
  return guarded(nullptr, false, [&] { return inside(engine)->next_log(*line); });
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
