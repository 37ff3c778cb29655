/*
 * sink_kind.cpp: kinds register themselves by a constructor that runs when the library is loaded. The list is
 * intrusive: it needs no memory, and it is ready before the first constructor of any file runs.
 */
#include "delivery/engine/probe.h"

namespace outbox {

/* An intrusive list: needs no memory, and is ready before the first constructor of any file runs. Kinds are made
 * with new and live for ever, so that nothing of them runs at exit. */
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

/* NOLINTNEXTLINE(performance-unnecessary-value-param): kinds that have one move it */
std::shared_ptr<void> SinkKind::probe(std::shared_ptr<const SinkConfig> /*config*/, Probe &probe) const {
  probe.passed("options", "they are in order; this kind of sink cannot be tried without an event");
  return nullptr;
}

std::string SinkKind::names() {
  std::string list;
  for (const SinkKind *kind = first_kind; kind; kind = kind->next_)
    list += (list.empty() ? "" : ", ") + std::string(kind->name_);
  return list;
}

}  // namespace outbox
