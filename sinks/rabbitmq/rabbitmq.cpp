/* rabbitmq.cpp: the kind. The work is done by publisher.cpp on the sink's thread. */
#include "delivery/engine/kind_library.h"
#include "publisher.h"
#include "rabbitmq_probe.h"

namespace outbox::rabbitmq {
namespace {

class RabbitKind final : public PeerKind<RabbitConfig, Publisher, probe_rabbitmq> {
public:
  RabbitKind() : PeerKind("rabbitmq") {}

private:
  void advise(const RabbitOptions &options, const Options &server, const Options *mapping,
              std::vector<Advice> &found) const override {
    if (!options.mandatory)
      found.push_back({"mandatory",
                       "An event that no queue takes counts as delivered, and is lost: the broker is not asked to "
                       "return it. Only an exchange that returns what it delivers (x-delayed-message) needs that.",
                       set_option(server, MANDATORY, "true"), true});
    if (options.user == "guest" && options.leaves_this_machine())
      found.push_back(
          {"login",
           "It logs in as guest, whom RabbitMQ accepts only from its own machine unless loopback_users "
           "says otherwise; everybody knows the password.",
           "-- make a user at the broker: " + set_in_mapping(mapping, {{USER, "..."}, {PASSWORD, "..."}})});
  }
};

}  // namespace
}  // namespace outbox::rabbitmq

OUTBOX_SINK_KIND(outbox::rabbitmq::RabbitKind)
