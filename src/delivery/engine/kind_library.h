/*
 * kind_library.h: for a kind of sink in a library of its own. Its C++ file ends with OUTBOX_SINK_KIND(Class), which
 * makes the struct that outbox asks for (delivery/kind.h).
 */
#pragma once

#include "delivery/engine/sink.h"
#include "delivery/kind.h"

namespace outbox {

/* Throws BadInput if the library with this kind of sink does not fit this one, or has another kind. */
void check_kind_fits(const std::string &kind, const ob_sink_kind *library, int pg_version);

/* The struct of the kinds that are linked with this code. */
const ob_sink_kind *kinds_of_this_library() noexcept;
/* The same, for a library with one kind. */
const ob_sink_kind *name_this_library(const SinkKind &kind, const char *version, int pg_version,
                                      bool messages_only) noexcept;

}  // namespace outbox

/* Class is a SinkKind with a constructor without arguments. kind_module.c calls the function. */
#define OUTBOX_SINK_KIND(Class) OUTBOX_MAKE_SINK_KIND(Class, false)
/* The same for the library that makes and checks messages only (ob_sink_kind.messages_only). */
#define OUTBOX_MESSAGES_KIND(Class) OUTBOX_MAKE_SINK_KIND(Class, true)
#define OUTBOX_MAKE_SINK_KIND(Class, messages_only)                                                                  \
  extern "C" const ob_sink_kind *outbox_make_sink_kind(const char *version, int pg_version) noexcept {               \
    try {                                                                                                            \
      static const auto &kind = *new Class; /* NOLINT(bugprone-macro-parentheses): a type */                         \
      return outbox::name_this_library(kind, version, pg_version, messages_only);                                    \
    } catch (...) {                                                                                                  \
      return nullptr;                                                                                                \
    }                                                                                                                \
  }
