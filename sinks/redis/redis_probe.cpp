/*
 * redis_probe.cpp: looks at what decides whether entries survive. A user without the right to look (CONFIG, TYPE) is
 * no failure.
 */
#include "redis_probe.h"

#include "connection.h"
#include "delivery/base/clean_text.h"
#include "delivery/net/peer_probe.h"
#include "server_errors.h"

namespace outbox::redis {
namespace {

class RedisProbe final : public PeerProbe<RedisConfig, Connection> {
public:
  using PeerProbe::PeerProbe;

private:
  bool ask() override {
    const bool has_stream = check_stream(), has_replicas = check_replicas();
    report_durability();
    report_eviction();
    return has_stream && has_replicas;
  }

  Reply ask(const std::vector<std::string_view> &words, const char *step) {
    return connection_->ask(Command(words), deadline(), step);
  }

  bool check_stream() {
    const std::string stream = config_.maker.stream_glob();
    if (config_.maker.stream_varies()) {
      probe_.passed("stream", "which stream it is depends on the event: \"" + stream + "\"");
      return true;
    }
    Reply reply = ask({"TYPE", stream}, "stream");
    const std::string type(text_of(*reply));
    if (is_error(*reply))
      probe_.passed("stream", "not known whether \"" + stream + "\" is a stream: " + read_error(type).text);
    else if (type == "none")
      probe_.passed("stream", "the first entry will create \"" + stream + "\"");
    else if (type == "stream")
      probe_.passed("stream", "\"" + stream + "\" is a stream");
    else
      probe_.failed("stream", "key \"" + stream + "\" is no stream, but has type " + peer_text(type),
                    "Rename or delete that key, or correct option stream. Events wait until then.");
    return is_error(*reply) || type == "none" || type == "stream";
  }

  bool check_replicas() {
    if (config_.options.wait_replicas == 0)
      return true;
    std::string least = std::to_string(config_.options.wait_replicas);
    Reply reply = ask({"WAIT", least, wait_timeout_ms}, "replicas");
    const std::optional<uint64_t> replicas = number_of(*reply);
    bool enough = replicas && *replicas >= config_.options.wait_replicas;
    std::string fact = is_error(*reply) ? read_error(text_of(*reply)).text
                       : replicas       ? std::to_string(*replicas) + " of " + least + " replicas answered"
                                        : std::string("WAIT is answered with ") + kind_of(*reply);
    if (enough)
      probe_.passed("replicas", fact);
    else
      probe_.failed("replicas", fact, "Start replicas of this server, or lower option wait_replicas.");
    return enough;
  }

  /* Empty if the server does not say. */
  std::string setting(const char *name) {
    Reply reply = ask({"CONFIG", "GET", name}, "durability");
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 ? std::string(text_of(*reply->element[1])) : "";
  }

  void report_durability() {
    std::string appendonly = setting("appendonly"), fsync = setting("appendfsync");
    if (appendonly.empty())
      probe_.passed("durability", "not known: the user may not read the server's settings",
                    "Look at appendonly and appendfsync.");
    else if (appendonly != "yes")
      probe_.passed("durability",
                    "appendonly is " + peer_text(appendonly) +
                        ": a crash of the server loses what came after its last snapshot",
                    "CONFIG SET appendonly yes, and the same in redis.conf.");
    else if (fsync == "always")
      probe_.passed("durability",
                    "appendonly yes, appendfsync always: an entry is on disk when it counts as delivered");
    else
      probe_.passed("durability",
                    "appendonly yes, appendfsync " + peer_text(fsync) + ": a crash of the server's machine loses " +
                        (fsync == "everysec" ? "up to two seconds" : "what the kernel has not written yet"),
                    "appendfsync always, or option wait_replicas, if that is too much.");
  }

  void report_eviction() {
    std::string policy = setting("maxmemory-policy");
    if (policy.starts_with("allkeys-"))
      probe_.passed("eviction",
                    "maxmemory-policy is " + peer_text(policy) + ": at maxmemory the server deletes whole streams",
                    "Set it to noeviction, so that events wait instead.");
  }
};

}  // namespace

void probe_redis(const RedisConfig &config, Probe &probe) {
  RedisProbe(config, probe).run();
}

}  // namespace outbox::redis
