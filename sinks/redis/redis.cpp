/* redis.cpp: the kind. The work is done by writer.cpp on the sink's thread. */
#include "delivery/engine/kind_library.h"
#include "redis_probe.h"
#include "writer.h"

namespace outbox::redis {
namespace {

class RedisKind final : public PeerKind<RedisConfig, Writer, probe_redis> {
public:
  RedisKind() : PeerKind("redis") {}

private:
  void advise(const RedisOptions &options, const Options &server, const Options * /*mapping*/,
              std::vector<Advice> &found) const override {
    if (options.hosts.size() > 1 && options.wait_replicas == 0)
      found.push_back({"replicas",
                       "An event counts as delivered when the master alone has it: a failover to a replica that does "
                       "not have it yet loses it.",
                       set_option(server, WAIT_REPLICAS, "1") + " -- waits until that number of replicas has it"});
    if (!options.maxlen)
      found.push_back({"maxlen",
                       "Its streams are not trimmed: they grow until the server has no memory, unless consumers trim "
                       "them.",
                       "-- trims each stream to about this number of its latest entries, read or not: " +
                           set_option(server, MAXLEN, "1000000"),
                       true});
  }
};

}  // namespace
}  // namespace outbox::redis

OUTBOX_SINK_KIND(outbox::redis::RedisKind)
