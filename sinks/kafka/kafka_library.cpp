/*
 * kafka_library.cpp: checks the version of the loaded librdkafka when a worker loads the kind and when a sink opens.
 */
#include "kafka_library.h"

#include <cstdio>

#include "delivery/options/options.h"

namespace outbox {
namespace {

/* A defect of some versions that outbox cannot work around. */
struct Defect {
  int from, fixed_in;
  const char *what;
};
constexpr Defect defects[] = {
    {0x020a00ff, 0x020a01ff, "When all brokers were away, it may not find them again."},
};

const std::string end_workers =
    "end the workers, which have loaded it: SELECT pg_terminate_backend(pid) FROM outbox.workers;";

std::string dotted(int version) {
  return std::to_string(version >> 24 & 0xff) + "." + std::to_string(version >> 16 & 0xff) + "." +
         std::to_string(version >> 8 & 0xff);
}

void set(char (&to)[512], const std::string &text) {
  snprintf(to, sizeof to, "%s", text.c_str());
}

}  // namespace

ob_fitness check_librdkafka(int version, const std::string &name, ob_error &advice) {
  advice = {};
  if (version < oldest_librdkafka) {
    set(advice.message,
        "librdkafka " + name + " is too old: outbox needs " + dotted(oldest_librdkafka) + " or later");
    set(advice.detail,
        "The database server found it as librdkafka.so.1. No Kafka sink opens with it; their events wait.");
    set(advice.hint, "Upgrade the package that brings it (Debian: librdkafka1), then " + end_workers);
    return OB_TOO_OLD;
  }
  for (const Defect &defect : defects)
    if (version >= defect.from && version < defect.fixed_in) {
      set(advice.message, "librdkafka " + name + " has a known defect");
      set(advice.detail, defect.what);
      set(advice.hint, "Upgrade it to " + dotted(defect.fixed_in) + " or later, then " + end_workers);
      return OB_DEFECTIVE;
    }
  set(advice.message, "librdkafka " + name + " is supported");
  if (version < recommended_librdkafka)
    set(advice.detail, dotted(recommended_librdkafka) + " or later is recommended.");
  return OB_FIT;
}

void describe_librdkafka(ob_client_library &out) {
  const std::string name = rd_kafka_version_str();
  snprintf(out.versions, sizeof out.versions, "librdkafka %s", name.c_str());
  out.fitness = check_librdkafka(rd_kafka_version(), name, out.advice);
}

void require_librdkafka() {
  ob_client_library loaded;
  describe_librdkafka(loaded);
  if (loaded.fitness == OB_TOO_OLD)
    throw BadInput(OB_INTERNAL, {}, loaded.advice.message, loaded.advice.detail, loaded.advice.hint);
}

}  // namespace outbox
