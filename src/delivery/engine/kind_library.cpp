/*
 * kind_library.cpp: whether a library with a kind of sink fits this one. Both are compiled C++ that share classes, so
 * a difference would not fail but corrupt memory.
 */
#include "delivery/engine/kind_library.h"

namespace outbox {

void check_kind_build(const std::string &kind, const ob_kind_build &build) {
  constexpr ob_kind_build own = this_build();
  auto built_by = [](const ob_kind_build &one) {
    return std::string(one.cxx_library) + " and ABI " + std::to_string(one.cxx_abi);
  };

  if (build.interface != own.interface)
    throw BadInput(OB_INTERNAL, {},
                   "the library of sink kind \"" + kind + "\" was built for another version of outbox",
                   "It has version " + std::to_string(build.interface) + " of the interface, outbox has version " +
                       std::to_string(own.interface) + ".",
                   "Install the build of outbox_" + kind +
                       " for this outbox, and end the workers, which keep a loaded "
                       "library: SELECT pg_terminate_backend(pid) FROM outbox.workers;");
  if (build.cxx_abi != own.cxx_abi || std::string_view(build.cxx_library) != own.cxx_library)
    throw BadInput(
        OB_INTERNAL, {}, "the library of sink kind \"" + kind + "\" was built by another compiler",
        "It was built with " + built_by(build) + ", outbox with " + built_by(own) + ".",
        "Build both with the same compiler and C++ library, and end the workers, which keep a loaded library: "
        "SELECT pg_terminate_backend(pid) FROM outbox.workers;");
}

void check_kind_was_made(const std::string &kind) {
  if (!SinkKind::find(kind))
    throw BadInput(OB_INTERNAL, {}, "the library of sink kind \"" + kind + "\" contains no kind of that name",
                   "The loaded libraries have: " + SinkKind::names() + ".",
                   "The SinkKind, the wrapper outbox_" + kind + " and its validator " + kind +
                       "_validator must have one name.");
}

}  // namespace outbox
