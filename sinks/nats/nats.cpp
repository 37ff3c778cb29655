/* nats.cpp: the kind. The work is done by publisher.cpp on the sink's thread. */
#include "delivery/engine/kind_library.h"
#include "nats_probe.h"
#include "publisher.h"

namespace outbox::nats {
namespace {

class NatsKind final : public PeerKind<NatsConfig, Publisher, probe_nats> {
public:
  NatsKind() : PeerKind("nats") {}

  SecretMask secrets(const SinkConfig &config, const Options &mapping) const override {
    SecretMask mask = SinkKind::secrets(config, mapping);
    if (const auto &parts = static_cast<const NatsConfig &>(config).options.credentials) {
      if (!parts->jwt.empty())
        mask.add(parts->jwt);
      mask.add(parts->seed);
    }
    return mask;
  }

private:
  void advise(const NatsOptions & /*options*/, const Options &server, const Options * /*mapping*/,
              std::vector<Advice> &found) const override {
    if (!find_option(server, STREAM))
      found.push_back(
          {"stream",
           "It names no stream: an event counts as delivered when any stream that takes its subject has it, "
           "also one that keeps it in memory only, or is somebody else's.",
           "-- name the stream that is meant for these events, such as ORDERS: " +
               set_option(server, STREAM, "ORDERS"),
           true});
  }
};

}  // namespace
}  // namespace outbox::nats

OUTBOX_SINK_KIND(outbox::nats::NatsKind)
