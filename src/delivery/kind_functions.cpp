/*
 * kind_functions.cpp: the functions of ob_sink_kind. outbox has them for its own kinds, and the static archive of the
 * kit has them for a kind in a library of its own. Memory is returned to the operating system only when
 * more than 16 MB of it are free: when each free block was returned at once, page faults took a tenth of the main
 * thread's time (5.3 µs per event instead of 4.1 to 4.4). The price: a hanging broker with 3,000 events of 100 kB
 * costs 58 MB instead of 50.
 */
#include <malloc.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "delivery/engine/engine.h"
#include "delivery/engine/kind_library.h"
#include "delivery/engine/probe.h"
#include "delivery/engine/sink_options.h"
#include "delivery/http/network_guard.h"
#include "delivery/options/field.h"
#include "delivery/options/guarded.h"
#include "delivery/options/pem.h"
#include "delivery/options/retry.h"

using namespace outbox;

namespace {
extern ob_sink_kind this_library;
}

struct ob_checker : ob_handle {
  std::shared_ptr<const SinkConfig> config;
};
struct ob_probe : ob_handle {
  std::shared_ptr<Probe> probe;
};

struct ob_preview : ob_handle {
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

static bool kind_check_options(const char *kind, ob_scope scope, const ob_option *options, size_t n, bool superuser,
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

static bool kind_check_owner(const char *kind, const ob_option *options, size_t n, const ob_option *mapping,
                             size_t n_mapping, ob_error *error) noexcept {
  return guarded(error, false, [&] {
    check_owner(sink_kind(kind), to_options(options, n), to_options(mapping, n_mapping));
    return true;
  });
}

static std::string for_sink(const std::string &hint, const char *sink) {
  std::string text;
  for (char c : hint)
    c == the_sink ? text.append(sink) : text.append(1, c);
  return text;
}

/* A key that a password protects is not opened only to advise, which takes up to a second for each sink. */
static Options without_protected_key(Options mapping) {
  if (find_option(mapping, SSL_KEY_PASSWORD))
    for (OptionName name : {SSL_KEY_PEM, SSL_KEY_PASSWORD, SSL_CERTIFICATE_PEM})
      mapping.erase(name);
  return mapping;
}

static size_t kind_advise(const char *kind, const char *sink, const ob_option *options, size_t n,
                          const ob_option *mapping, size_t n_mapping, ob_advice *out, size_t max) noexcept {
  return guarded(nullptr, size_t(0), [&] {
    const SinkKind &sinks = sink_kind(kind);
    const Options server = to_options(options, n), secrets = to_options(mapping, n_mapping);
    const Options parsed = without_protected_key(secrets);
    auto config = parse_options(sinks, server, &parsed);
    size_t given = 0;
    for (const Advice &advice : sinks.advise(*config, server, mapping ? &secrets : nullptr)) {
      if (given == max)
        break;
      const std::string hint = for_sink(advice.hint, sink);
      out[given].may_be_meant = advice.may_be_meant;
      copy_text(out[given].check, advice.check);
      copy_text(out[given].detail, advice.detail);
      copy_text(out[given].hint, hint.size() < sizeof(out->hint) ? hint : "-- too long to be shown");
      given++;
    }
    return given;
  });
}

static size_t copy_names(const std::vector<const char *> &found, const char **names, size_t max) {
  size_t n = std::min(max, found.size());
  std::copy_n(found.begin(), n, names);
  return n;
}

static size_t kind_option_names(const char *kind, ob_scope scope, const char **names, size_t max) noexcept {
  return guarded(nullptr, size_t(0), [&] {
    const SinkKind &sink = sink_kind(kind);
    std::vector<const char *> found, others;
    for (const auto *specs : {&common_options(), &sink.options()})
      for (const OptionSpec &spec : *specs)
        if (scope == OB_SERVER ? spec.in_server : spec.in_mapping)
          found.push_back(spec.name.text);
    sink.other_names(scope, others);
    std::copy_if(others.begin(), others.end(), std::back_inserter(found), [&](std::string_view other) {
      return std::none_of(found.begin(), found.end(), [&](std::string_view name) { return name == other; });
    });
    return copy_names(found, names, max);
  });
}

static size_t kind_target_options(const char *kind, const char **names, size_t max) noexcept {
  return guarded(nullptr, size_t(0), [&] {
    std::vector<const char *> found;
    for (OptionName name : sink_kind(kind).target_options())
      found.push_back(name.text);
    return copy_names(found, names, max);
  });
}

static bool kind_common_options(const char *kind, const ob_option *options, size_t n, ob_common *out,
                                ob_error *error) noexcept {
  return guarded(error, false, [&] {
    const SinkKind &sink = sink_kind(kind);
    KindDefaults defaults = sink.defaults(to_options(options, n));
    const size_t max_payload = std::clamp(defaults.largest_message, OB_DEFAULT_MAX_PAYLOAD, OB_LARGEST_PAYLOAD);
    *out = {true,       false, 0, -1, nullptr, defaults.max_attempts, defaults.retry, defaults.disable_after.count(),
            max_payload};
    for (const ob_option &option : std::span(options, n)) {
      std::string name = option.name;
      const char *value = option.value ? option.value : "";
      for (const OptionSpec &spec : common_options())
        if (name == spec.name.text && spec.check)
          spec.check(name, value);
      if (name == ORDERED.text)
        out->ordered = parse_bool(name, value);
      else if (name == ON_DEAD_LETTER.text)
        out->block_on_dead_letter = parse_on_dead_letter(name, value);
      else if (name == RETRY.text)
        out->retry = value;
      else if (name == MAX_ATTEMPTS.text)
        out->max_attempts = static_cast<int>(parse_int(name, value, 1, INT32_MAX));
      else if (name == MAX_PAYLOAD.text)
        out->max_payload = parse_max_payload(name, value);
      else if (name == RETENTION.text)
        out->retention_ms =
            parse_duration(name, value, std::chrono::milliseconds(0), std::chrono::milliseconds::max()).count();
    }
    return true;
  });
}

static ob_checker *kind_checker_open(const char *kind, const ob_option *options, size_t n, ob_error *error) noexcept {
  return guarded(error, static_cast<ob_checker *>(nullptr), [&] {
    auto config = parse_options(sink_kind(kind), to_options(options, n), nullptr);
    return new ob_checker{{&this_library}, std::move(config)};
  });
}

static ob_checker *kind_checker_open_with_secrets(const char *kind, const ob_option *options, size_t n,
                                                  const ob_option *mapping, size_t n_mapping,
                                                  ob_error *error) noexcept {
  return guarded(error, static_cast<ob_checker *>(nullptr), [&] {
    Options secrets = to_options(mapping, n_mapping);
    return new ob_checker{{&this_library}, parse_options(sink_kind(kind), to_options(options, n), &secrets)};
  });
}

static bool kind_checker_check(const ob_checker *checker, const ob_event *event, ob_error *error) noexcept {
  return guarded(error, false, [&] {
    checker->config->check_event(*event);
    return true;
  });
}

static bool kind_checker_check_new(const ob_checker *checker, const ob_event *event, ob_error *error) noexcept {
  return guarded(error, false, [&] {
    checker->config->check_event(*event);
    checker->config->check_new_event(*event);
    return true;
  });
}

static size_t kind_checker_max_payload(const ob_checker *checker) noexcept {
  return guarded(nullptr, SIZE_MAX, [&] { return checker->config->max_payload(); });
}

static void kind_checker_close(ob_checker *checker) noexcept {
  delete checker;
}

static ob_preview *kind_preview_open(const ob_checker *checker, const ob_event *event, int64_t now,
                                     ob_error *error) noexcept {
  return guarded(error, static_cast<ob_preview *>(nullptr), [&] {
    checker->config->check_event(*event);
    auto preview = std::make_unique<ob_preview>();
    preview->library = &this_library;
    preview->parts = checker->config->preview(*event, now);
    for (const PreviewPart &part : preview->parts)
      preview->plain.push_back(to_plain(part));
    return preview.release();
  });
}

static const ob_part *kind_preview_parts(const ob_preview *preview, size_t *n) noexcept {
  *n = preview->plain.size();
  return preview->plain.data();
}

static void kind_preview_close(ob_preview *preview) noexcept {
  delete preview;
}

static ob_engine *kind_engine_open(ob_error *error) noexcept {
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

static int kind_engine_fd(const ob_engine *engine) noexcept {
  return inside(engine)->fd();
}

static bool kind_engine_close(ob_engine *engine, int timeout_ms) noexcept {
  bool gone = guarded(nullptr, false, [&] { return inside(engine)->close(std::chrono::milliseconds(timeout_ms)); });
  delete inside(engine);
  return gone;
}

static ob_sink *kind_sink_open(ob_engine *engine, const char *name, const char *kind, const ob_option *options,
                               size_t n, const ob_option *mapping, size_t n_mapping, ob_error *error) noexcept {
  return guarded(error, static_cast<ob_sink *>(nullptr), [&] {
    const SinkKind &sink = sink_kind(kind);
    const Options secrets = to_options(mapping, n_mapping), server = to_options(options, n);
    Options opened = secrets;
    if (!inside(engine)->open_key(opened))
      throw BadInput(OB_NOT_YET, SSL_KEY_PEM, "the client's key is being opened", {}, {});
    auto config = parse_options(sink, server, &opened);
    const std::string *on_dead_letter = find_option(server, ON_DEAD_LETTER);
    bool blocks_on_dead_letter = on_dead_letter && parse_on_dead_letter(ON_DEAD_LETTER, *on_dead_letter);
    Runner *runner =
        inside(engine)->open(name, sink, std::move(config), blocks_on_dead_letter, sink.secrets(secrets));
    runner->library = &this_library;
    return reinterpret_cast<ob_sink *>(runner);
  });
}

static void kind_sink_share(ob_sink *sink, int index, int of, int64_t *rate_clock) noexcept {
  guarded(nullptr, false, [&] {
    inside(sink)->share(static_cast<size_t>(index), static_cast<size_t>(of), rate_clock);
    return true;
  });
}

static void kind_sink_keep_acknowledgements(ob_sink *sink, bool keep) noexcept {
  guarded(nullptr, false, [&] {
    inside(sink)->keep_acknowledgements(keep);
    return true;
  });
}

static void kind_sink_begin_slowly(ob_sink *sink) noexcept {
  guarded(nullptr, false, [&] {
    inside(sink)->begin_slowly();
    return true;
  });
}

static void kind_sink_end_pause(ob_sink *sink) noexcept {
  guarded(nullptr, false, [&] {
    inside(sink)->end_pause();
    return true;
  });
}

static void kind_sink_close(ob_sink *sink, int grace_ms) noexcept {
  guarded(nullptr, false, [&] {
    inside(sink)->close(std::chrono::milliseconds(grace_ms));
    return true;
  });
}

static bool kind_sink_closed(ob_sink *sink) noexcept {
  return guarded(nullptr, false, [&] {
    Runner *runner = inside(sink);
    if (!runner->finished())
      return false;
    runner->engine().forget(runner);
    return true;
  });
}

static void kind_sink_get_status(ob_sink *sink, ob_sink_status *status) noexcept {
  *status = {OB_SINK_OK, 0, -1, -1, 0, 0, 0, {}, {}};
  guarded(nullptr, false, [&] {
    inside(sink)->status(*status);
    return true;
  });
}

static bool kind_sink_next_resumed(ob_sink *sink, char *error, size_t size) noexcept {
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

static size_t kind_submit(ob_sink *sink, const ob_event *events, size_t n) noexcept {
  return guarded(nullptr, size_t(0), [&] { return inside(sink)->submit(events, n); });
}

static size_t kind_collect(ob_engine *engine, ob_completion *out, size_t max) noexcept {
  size_t n = 0;
  guarded(nullptr, false, [&] {
    inside(engine)->collect(out, max, n);
    return true;
  });
  return n;
}

static ob_probe *kind_probe_start(ob_engine *engine, const char *name, const char *kind, const ob_option *options,
                                  size_t n, const ob_option *mapping, size_t n_mapping, int timeout_ms, bool send,
                                  const char *topics, ob_error *error) noexcept {
  return guarded(error, static_cast<ob_probe *>(nullptr), [&] {
    return new ob_probe{{&this_library},
                        inside(engine)->probe(name, sink_kind(kind), to_options(options, n),
                                              to_options(mapping, n_mapping), std::chrono::milliseconds(timeout_ms),
                                              send, topics)};
  });
}

static bool kind_probe_poll(const ob_probe *probe, ob_probe_step *steps, size_t max, size_t *n) noexcept {
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

static void kind_probe_finish(ob_probe *probe) noexcept {
  probe->probe->cancel();
  delete probe;
}

static bool kind_next_log(ob_engine *engine, ob_log_line *line) noexcept {
  return guarded(nullptr, false, [&] { return inside(engine)->next_log(*line); });
}

namespace {
/* Not const: the name and the versions are set when a library makes its kind. */
ob_sink_kind this_library = {
    OB_KIND_MAGIC,
    sizeof(ob_sink_kind),
    OB_KIND_INTERFACE,
    0,
    nullptr,
    "",
    set_database,
    set_networks,
    kind_check_options,
    kind_check_owner,
    kind_advise,
    kind_option_names,
    kind_target_options,
    kind_common_options,
    kind_checker_open,
    kind_checker_open_with_secrets,
    kind_checker_check,
    kind_checker_check_new,
    kind_checker_max_payload,
    kind_checker_close,
    kind_preview_open,
    kind_preview_parts,
    kind_preview_close,
    kind_engine_open,
    kind_engine_fd,
    kind_engine_close,
    kind_sink_open,
    kind_sink_share,
    kind_sink_keep_acknowledgements,
    kind_sink_begin_slowly,
    kind_sink_end_pause,
    kind_sink_close,
    kind_sink_closed,
    kind_sink_get_status,
    kind_sink_next_resumed,
    kind_submit,
    kind_collect,
    kind_probe_start,
    kind_probe_poll,
    kind_probe_finish,
    kind_next_log,
};
}  // namespace

const ob_sink_kind *outbox::kinds_of_this_library() noexcept {
  return &this_library;
}

const ob_sink_kind *outbox::name_this_library(const SinkKind &kind, const char *version, int pg_version) noexcept {
  this_library.name = kind.name();
  this_library.version = version;
  this_library.pg_version = pg_version;
  return &this_library;
}
