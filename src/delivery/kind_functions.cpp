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
#include "delivery/options/common_options.h"
#include "delivery/options/field.h"
#include "delivery/options/guarded.h"
#include "delivery/options/pem.h"

using namespace outbox;

namespace {
extern ob_sink_kind this_library;

struct Checker : ob_checker {
  std::shared_ptr<const SinkConfig> config;
};
struct MadePreview : ob_preview {
  Preview made;
  std::vector<ob_part> plain; /* points into `made` */
};
struct StartedProbe : ob_probe {
  std::shared_ptr<Probe> probe;
};

/* The handles of the border are made by this library alone. */
Engine *inside(ob_engine *engine) {
  return static_cast<Engine *>(engine);
}
OpenSink *inside(ob_sink *sink) {
  return static_cast<OpenSink *>(sink);
}
const SinkConfig &config_of(const ob_checker *checker) {
  return *static_cast<const Checker *>(checker)->config;
}

ob_part to_plain(const PreviewPart &from) {
  ob_part part{from.part, {}, {}, {}};
  if (!from.name.empty())
    part.name = {from.name.data(), from.name.size()};
  if (from.bytes)
    part.bytes = {from.bytes->data(), from.bytes->size()};
  else if (!from.text.empty())
    part.text = {from.text.data(), from.text.size()};
  return part;
}

Options server_of(const ob_sink_options *given) {
  return to_options(given->server, given->n_server);
}
Options mapping_of(const ob_sink_options *given) {
  return to_options(given->mapping, given->n_mapping);
}
Owner owner_of(const ob_sink_options *given) {
  return given->owner_is_superuser ? Owner::Superuser : Owner::User;
}

/* For functions that have nothing to return. */
template <class Body> void guard(Body body) noexcept {
  guarded(nullptr, false, [&] {
    body();
    return true;
  });
}

/* For functions that return a number. */
template <class Body> size_t counted(Body body) noexcept {
  ob_error error;
  const size_t n = guarded(&error, size_t(0), body);
  return error.kind == OB_OUT_OF_MEMORY ? SIZE_MAX : n;
}

void configure(const char *database, uint32_t timeline, const char *networks) noexcept {
  guard([&] {
    set_origin(database, timeline);
    set_networks(networks);
  });
}

void client_library(ob_client_library *out) noexcept {
  *out = {};
  guard([&] {
    if (const SinkKind *kind = this_library.name ? SinkKind::find(this_library.name) : nullptr)
      kind->client_library(*out);
  });
}

/* ---- options ---- */

bool check_options(const char *kind, ob_scope scope, const ob_sink_options *given, bool superuser,
                   ob_error *error) noexcept {
  return guarded(error, false, [&] {
    const SinkKind &sink = sink_kind(kind);
    if (scope == OB_BOTH) {
      check_owner(sink, server_of(given), mapping_of(given));
    } else if (scope == OB_USER_MAPPING) {
      check_mapping(sink, mapping_of(given), superuser);
    } else {
      const Options server = server_of(given);
      outbox::check_options(sink, scope, server, superuser);
      sink.parse(server, nullptr);
    }
    return true;
  });
}

std::string for_sink(const std::string &hint, const char *sink) {
  std::string text;
  for (char c : hint)
    c == the_sink ? text.append(sink) : text.append(1, c);
  return text;
}

size_t advise(const char *kind, const char *sink, const ob_sink_options *given, ob_advice *out, size_t max) noexcept {
  return counted([&] {
    const SinkKind &sinks = sink_kind(kind);
    const Options server = server_of(given), secrets = mapping_of(given);
    auto config = parse_options(sinks, server, &secrets);
    size_t written = 0;
    for (const Advice &advice : sinks.advise(*config, server, given->mapping_known ? &secrets : nullptr)) {
      if (written == max)
        break;
      const std::string hint = for_sink(advice.hint, sink);
      out[written].may_be_meant = advice.may_be_meant;
      copy_text(out[written].check, advice.check);
      copy_text(out[written].detail, advice.detail);
      copy_text(out[written].hint, hint.size() < sizeof(out->hint) ? hint : "-- too long to be shown");
      written++;
    }
    return written;
  });
}

size_t copy_names(const std::vector<const char *> &found, const char **names, size_t max) {
  size_t n = std::min(max, found.size());
  std::copy_n(found.begin(), n, names);
  return n;
}

size_t option_names(const char *kind, ob_scope scope, const char **names, size_t max) noexcept {
  return counted([&] {
    const SinkKind &sink = sink_kind(kind);
    std::vector<const char *> found, others;
    if (scope == OB_TARGET) {
      for (OptionName name : sink.target_options())
        found.push_back(name.text);
      return copy_names(found, names, max);
    }
    for (const auto *specs : {&CommonOptions::table().specs(), &sink.options()})
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

bool common_options(const char *kind, const ob_option *options, size_t n, ob_common *out, ob_error *error) noexcept {
  return guarded(error, false, [&] {
    const SinkKind &sink = sink_kind(kind);
    const Options server = to_options(options, n);
    const KindDefaults defaults = sink.defaults(server);
    const size_t max_payload = std::clamp(defaults.largest_message, OB_DEFAULT_MAX_PAYLOAD, OB_LARGEST_PAYLOAD);
    const CommonOptions given = CommonOptions::of(server);
    const auto retry = std::find_if(options, options + n,
                                    [](const ob_option &each) { return std::string_view(each.name) == RETRY.text; });
    *out = {given.ordered,
            given.blocks_on_dead_letter,
            given.max_attempts.value_or(0),
            given.retention ? given.retention->count() : -1,
            given.retry.empty() ? nullptr : retry->value,
            defaults.max_attempts,
            defaults.retry,
            defaults.disable_after.count(),
            given.max_payload.value_or(max_payload),
            defaults.longest_answer.count()};
    return true;
  });
}

/* ---- messages ---- */

ob_checker *checker_open(const char *kind, const ob_sink_options *given, ob_error *error) noexcept {
  return guarded(error, static_cast<ob_checker *>(nullptr), [&]() -> ob_checker * {
    const Options mapping = mapping_of(given);
    auto config = parse_options(sink_kind(kind), server_of(given), given->mapping_known ? &mapping : nullptr);
    const size_t max_payload = config->max_payload();
    return new Checker{
        {&this_library, [](ob_checker *checker) noexcept { delete static_cast<Checker *>(checker); }, max_payload},
        std::move(config)};
  });
}

bool checker_check(const ob_checker *checker, const ob_event *event, bool is_new, ob_error *error) noexcept {
  return guarded(error, false, [&] {
    config_of(checker).check_event(*event);
    if (is_new)
      config_of(checker).check_new_event(*event);
    return true;
  });
}

ob_preview *preview_open(const ob_checker *checker, const ob_event *event, int64_t now, ob_error *error) noexcept {
  return guarded(error, static_cast<ob_preview *>(nullptr), [&]() -> ob_preview * {
    config_of(checker).check_event(*event);
    auto preview = std::make_unique<MadePreview>();
    preview->release = [](ob_preview *made) noexcept { delete static_cast<MadePreview *>(made); };
    preview->made = config_of(checker).preview(*event, now);
    for (const PreviewPart &part : preview->made)
      preview->plain.push_back(to_plain(part));
    preview->parts = preview->plain.data();
    preview->n = preview->plain.size();
    return preview.release();
  });
}

/* ---- the engine ---- */

ob_engine *engine_open(ob_error *error) noexcept {
  return guarded(error, static_cast<ob_engine *>(nullptr), [] {
    /* Call before the first thread starts. One arena per thread would keep the memory of every burst. glibc's dynamic
     * thresholds would keep too much memory, and low thresholds would fault the same pages in again in every round.
     */
    mallopt(M_ARENA_MAX, 2);
    mallopt(M_MMAP_THRESHOLD, 16 * 1024 * 1024);
    mallopt(M_TRIM_THRESHOLD, 16 * 1024 * 1024);
    return static_cast<ob_engine *>(new Engine);
  });
}

bool engine_close(ob_engine *engine, int timeout_ms) noexcept {
  bool gone = guarded(nullptr, false, [&] { return inside(engine)->close(std::chrono::milliseconds(timeout_ms)); });
  delete inside(engine);
  return gone;
}

size_t collect(ob_engine *engine, ob_completion *out, size_t max) noexcept {
  size_t n = 0;
  guard([&] { inside(engine)->collect(out, max, n); });
  return n;
}

bool next_log(ob_engine *engine, ob_log_line *line) noexcept {
  return guarded(nullptr, false, [&] { return inside(engine)->next_log(*line); });
}

/* ---- sinks ---- */

ob_sink *sink_open(ob_engine *engine, const char *name, const char *kind, const ob_sink_options *given,
                   ob_error *error) noexcept {
  return guarded(error, static_cast<ob_sink *>(nullptr), [&]() -> ob_sink * {
    const SinkKind &sink = sink_kind(kind);
    const Options mapping = mapping_of(given), server = server_of(given);
    auto config = parse_options(sink, server, &mapping, owner_of(given));
    SecretMask secrets = sink.secrets(*config, mapping);
    OpenSink *open_sink = inside(engine)->open(name, sink, std::move(config),
                                               CommonOptions::of(server).blocks_on_dead_letter, std::move(secrets));
    open_sink->kind = &this_library;
    return open_sink;
  });
}

void sink_tell(ob_sink *sink, const ob_sink_order *order) noexcept {
  guard([&] {
    if (order->of > 0)
      inside(sink)->share(static_cast<size_t>(order->index), static_cast<size_t>(order->of), order->rate_clock);
    if (order->keep_acknowledgements || order->drop_acknowledgements)
      inside(sink)->keep_acknowledgements(order->keep_acknowledgements);
    if (order->begin_slowly)
      inside(sink)->begin_slowly();
    if (order->end_pause)
      inside(sink)->end_pause();
  });
}

void sink_get_status(ob_sink *sink, ob_sink_status *status) noexcept {
  *status = {OB_SINK_OK, 0, -1, -1, 0, 0, 0, {}, 0, {}};
  guard([&] { inside(sink)->status(*status); });
}

bool sink_next_resumed(ob_sink *sink, char *error, size_t size) noexcept {
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

size_t submit(ob_sink *sink, const ob_event *events, size_t n) noexcept {
  return guarded(nullptr, size_t(0), [&] { return inside(sink)->submit(events, n); });
}

void sink_close(ob_sink *sink, int grace_ms) noexcept {
  guard([&] { inside(sink)->close(std::chrono::milliseconds(grace_ms)); });
}

bool sink_closed(ob_sink *sink) noexcept {
  return guarded(nullptr, false, [&] {
    OpenSink *open_sink = inside(sink);
    if (!open_sink->finished())
      return false;
    open_sink->engine().forget(open_sink);
    return true;
  });
}

/* ---- probes ---- */

ob_probe *probe_start(ob_engine *engine, const char *name, const char *kind, const ob_sink_options *given,
                      int timeout_ms, bool send, const char *topics, ob_error *error) noexcept {
  return guarded(error, static_cast<ob_probe *>(nullptr), [&]() -> ob_probe * {
    auto probe = inside(engine)->probe(name, sink_kind(kind), server_of(given), mapping_of(given), owner_of(given),
                                       std::chrono::milliseconds(timeout_ms), send, topics);
    return new StartedProbe{{&this_library,
                             [](ob_probe *started) noexcept {
                               static_cast<StartedProbe *>(started)->probe->cancel();
                               delete static_cast<StartedProbe *>(started);
                             }},
                            std::move(probe)};
  });
}

bool probe_poll(const ob_probe *probe, ob_probe_step *steps, size_t max, size_t *n) noexcept {
  *n = 0;
  return guarded(nullptr, false, [&] {
    std::vector<ProbeStep> found;
    bool done = static_cast<const StartedProbe *>(probe)->probe->poll(found);
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

/* Not const: the name and the versions are set when a library makes its kind. */
ob_sink_kind this_library = {
    .magic = OB_KIND_MAGIC,
    .size = sizeof(ob_sink_kind),
    .interface = OB_KIND_INTERFACE,
    .pg_version = 0,
    .name = nullptr,
    .version = "",
    .messages_only = false,
    .configure = configure,
    .client_library = client_library,
    .check_options = check_options,
    .common_options = common_options,
    .option_names = option_names,
    .advise = advise,
    .checker_open = checker_open,
    .checker_check = checker_check,
    .preview_open = preview_open,
    .engine_open = engine_open,
    .engine_close = engine_close,
    .collect = collect,
    .next_log = next_log,
    .sink_open = sink_open,
    .sink_tell = sink_tell,
    .sink_get_status = sink_get_status,
    .sink_next_resumed = sink_next_resumed,
    .submit = submit,
    .sink_close = sink_close,
    .sink_closed = sink_closed,
    .probe_start = probe_start,
    .probe_poll = probe_poll,
};

}  // namespace

const ob_sink_kind *outbox::kinds_of_this_library() noexcept {
  return &this_library;
}

const ob_sink_kind *outbox::name_this_library(const SinkKind &kind, const char *version, int pg_version,
                                              bool messages_only) noexcept {
  this_library.name = kind.name();
  this_library.messages_only = messages_only;
  this_library.version = version;
  this_library.pg_version = pg_version;
  return &this_library;
}
