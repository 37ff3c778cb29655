/*
 * kind_library.h: for a kind of sink in a library of its own. Its C++ file ends with OUTBOX_SINK_KIND(Class), which
 * the core looks up when it has loaded the library. The kind is made only after the check that both libraries were
 * built alike.
 */
#pragma once

#include "delivery/engine/sink.h"

namespace outbox {

/* What this header is compiled with. */
constexpr ob_kind_build this_build() {
#ifdef _LIBCPP_VERSION
  return {OB_KIND_INTERFACE, __GXX_ABI_VERSION, "libc++"};
#elif _GLIBCXX_USE_CXX11_ABI
  return {OB_KIND_INTERFACE, __GXX_ABI_VERSION, "libstdc++"};
#else
  return {OB_KIND_INTERFACE, __GXX_ABI_VERSION, "libstdc++ with the strings of C++98"};
#endif
}

/* Throws BadInput if a library that was built so cannot work with this one. */
void check_kind_build(const std::string &kind, const ob_kind_build &build);
/* Throws BadInput if the list of kinds has none of this name. */
void check_kind_was_made(const std::string &kind);

}  // namespace outbox

/* Class is a SinkKind with a constructor without arguments. */
#define OUTBOX_SINK_KIND(Class)                                                                                      \
  extern "C" {                                                                                                       \
  __attribute__((visibility("default"))) const ob_kind_build *outbox_kind_build() noexcept {                         \
    static constexpr ob_kind_build build = outbox::this_build();                                                     \
    return &build;                                                                                                   \
  }                                                                                                                  \
  __attribute__((visibility("default"))) void outbox_kind_make() {                                                   \
    [[maybe_unused]] static const auto *const kind = new Class; /* NOLINT(bugprone-macro-parentheses): a type */     \
  }                                                                                                                  \
  }
