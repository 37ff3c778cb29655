#include "sink.h"

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

}  // namespace outbox
