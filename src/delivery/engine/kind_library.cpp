/* kind_library.cpp: whether a library with a kind of sink fits this one. A struct of another layout is not read
 * beyond its first fields, which never change. */
#include "delivery/engine/kind_library.h"

namespace outbox {

void check_kind_fits(const std::string &kind, const ob_sink_kind *library, int pg_version) {
  auto refuse = [&kind](const std::string &how, const std::string &detail) {
    return BadInput(OB_INTERNAL, {}, "the library of sink kind \"" + kind + "\" " + how, detail,
                    "Install the build of outbox_" + kind +
                        " for this outbox, and end the workers, which keep a loaded library: "
                        "SELECT pg_terminate_backend(pid) FROM outbox.workers; after an upgrade of outbox itself, "
                        "restart the server.");
  };

  if (!library)
    throw refuse("could not make its kind", "");
  if (library->magic != OB_KIND_MAGIC)
    throw refuse("is none for outbox", "It does not begin with outbox's magic number.");
  if (library->interface != OB_KIND_INTERFACE || library->size != sizeof(ob_sink_kind))
    throw refuse("was built for another version of outbox",
                 "It has version " + std::to_string(library->interface) + " of the interface, with " +
                     std::to_string(library->size) + " bytes; outbox has version " +
                     std::to_string(OB_KIND_INTERFACE) + ", with " + std::to_string(sizeof(ob_sink_kind)) + ".");
  if (library->pg_version / 10000 != pg_version / 10000)
    throw refuse("was built for another version of PostgreSQL",
                 "It was built for " + std::to_string(library->pg_version / 10000) + ", the server is " +
                     std::to_string(pg_version / 10000) + ".");
  if (!library->name || !library->version)
    throw refuse("has no name", "");
  if (kind != library->name)
    throw refuse("contains no kind of that name",
                 "It contains \"" + std::string(library->name) + "\" of version " + library->version + ".");
}

}  // namespace outbox
