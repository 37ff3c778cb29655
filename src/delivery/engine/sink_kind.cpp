/*
 * sink_kind.cpp: the list of kinds. A kind registers itself in its constructor: when the library is loaded, or, for a
 * kind in a library of its own, when the server side has found that the two libraries fit.
 */
#include <atomic>
#include <map>
#include <mutex>

#include "delivery/engine/probe.h"

namespace outbox {

/* An intrusive list needs no memory, and exists before the first constructor of any file runs. Kinds are created with
 * new and never destroyed, so no destructor runs at exit. Probes read it while the main thread adds a kind. */
static constinit std::atomic<const SinkKind *> first_kind = nullptr;

SinkKind::SinkKind(const char *name) : name_(name), next_(first_kind) {
  first_kind = this;
}

const SinkKind *SinkKind::find(std::string_view name) {
  for (const SinkKind *kind = first_kind; kind; kind = kind->next_)
    if (name == kind->name_)
      return kind;
  return nullptr;
}

namespace {
/* Never destroyed, as the kinds. */
struct Unavailable {
  std::mutex mutex;
  std::map<std::string, BadInput, std::less<>> kinds;
};
Unavailable &unavailable() {
  static auto &them = *new Unavailable;
  return them;
}
}  // namespace

void SinkKind::throw_if_unavailable(std::string_view name) {
  std::lock_guard lock(unavailable().mutex);
  if (auto found = unavailable().kinds.find(name); found != unavailable().kinds.end())
    throw BadInput(found->second);
}

bool SinkKind::is_unavailable(std::string_view name) {
  std::lock_guard lock(unavailable().mutex);
  return unavailable().kinds.contains(name);
}

void SinkKind::set_unavailable(std::string name, BadInput why) {
  std::lock_guard lock(unavailable().mutex);
  unavailable().kinds.insert_or_assign(std::move(name), std::move(why));
}

SecretMask SinkKind::secrets(const SinkConfig & /*config*/, const Options &mapping) const {
  SecretMask mask;
  /* A password that equals the user's name is no secret. */
  const std::string *user = find_option(mapping, USER);
  for (const OptionSpec &spec : options())
    if (auto *value = spec.secret ? find_option(mapping, spec.name) : nullptr;
        value && (value == user || user == nullptr || *value != *user))
      mask.add(*value);
  return mask;
}

/* NOLINTBEGIN(performance-unnecessary-value-param): overriding kinds move them */
std::unique_ptr<Sink> SinkKind::open(const std::string &name, std::shared_ptr<const SinkConfig> /*config*/,
                                     std::shared_ptr<Reporter> /*reporter*/) const {
  throw BadInput(OB_INTERNAL, {}, "sink \"" + name + "\" cannot be opened by this library of its kind");
}

std::shared_ptr<void> SinkKind::probe(std::shared_ptr<const SinkConfig> /*config*/, Probe &probe) const {
  probe.passed("options", "the options are valid; this kind of sink cannot be probed without an event");
  probe.can_deliver();
  return nullptr;
}
/* NOLINTEND(performance-unnecessary-value-param) */

std::string SinkKind::names() {
  std::string list;
  for (const SinkKind *kind = first_kind; kind; kind = kind->next_)
    list += (list.empty() ? "" : ", ") + std::string(kind->name_);
  return list;
}

}  // namespace outbox
