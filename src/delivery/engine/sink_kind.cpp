/*
 * sink_kind.cpp: the list of kinds. A kind registers itself in its constructor, which runs when the library is
 * loaded.
 */
#include "delivery/engine/probe.h"

namespace outbox {

/* An intrusive list needs no memory, and exists before the first constructor of any file runs. Kinds are created with
 * new and never destroyed, so no destructor runs at exit. */
static constinit const SinkKind *first_kind = nullptr;

SinkKind::SinkKind(const char *name) : name_(name), next_(first_kind) {
  first_kind = this;
}

const SinkKind *SinkKind::find(std::string_view name) {
  for (const SinkKind *kind = first_kind; kind; kind = kind->next_)
    if (name == kind->name_)
      return kind;
  return nullptr;
}

SecretMask SinkKind::secrets(const Options &mapping) const {
  SecretMask mask;
  for (const OptionSpec &spec : options())
    if (auto *value = spec.secret ? find_option(mapping, spec.name) : nullptr)
      mask.add(*value);
  return mask;
}

/* NOLINTNEXTLINE(performance-unnecessary-value-param): overriding kinds move it */
std::shared_ptr<void> SinkKind::probe(std::shared_ptr<const SinkConfig> /*config*/, Probe &probe) const {
  probe.passed("options", "the options are valid; this kind of sink cannot be probed without an event");
  return nullptr;
}

std::string SinkKind::names() {
  std::string list;
  for (const SinkKind *kind = first_kind; kind; kind = kind->next_)
    list += (list.empty() ? "" : ", ") + std::string(kind->name_);
  return list;
}

}  // namespace outbox
