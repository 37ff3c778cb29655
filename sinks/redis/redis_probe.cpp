/*
 * redis_probe.cpp: connects as the sink does, host by host, looks at what decides whether entries survive, and on
 * request adds an entry that says it is a test. A user without the right to look (CONFIG, TYPE, ROLE) is no failure.
 */
#include "redis_probe.h"

#include "connection.h"
#include "delivery/base/clean_text.h"
#include "delivery/engine/test_event.h"
#include "server_errors.h"

namespace outbox::redis {
namespace {

class RedisProbe {
public:
  RedisProbe(const RedisConfig &config, Probe &probe) : config_(config), probe_(probe), deadline_(limit()) {}

  void run() {
    const auto &hosts = config_.connecting.hosts;
    bool connected = false;
    for (size_t i = 0; i < hosts.size() && !probe_.over() && !connected; i++) {
      try {
        connect(hosts[i]);
        connected = true;
      } catch (const PeerError &error) {
        failed(error, hosts.size() == 1 ? "" : hosts[i].text() + ": ");
      }
    }
    if (!connected)
      return;
    try {
      bool good = check_stream();
      good &= check_replicas();
      report_durability();
      report_eviction();
      if (good && probe_.sends())
        send();
    } catch (const PeerError &error) {
      failed(error, "");
    }
  }

private:
  Deadline limit() const {
    return {Probe::Clock::now() + std::min(config_.connecting.connect_timeout, probe_.left()),
            [this] { return probe_.over(); }};
  }

  void failed(const PeerError &error, const std::string &host) {
    std::string hint = error.hint;
    if (!hint.empty())
      hint[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(hint[0])));
    probe_.failed(error.step, host + error.what(), hint.empty() ? hint : hint + ".");
  }

  Reply ask(const std::vector<std::string_view> &words, const char *step) {
    return connection_->ask(Command(words), deadline_, step);
  }

  void connect(const Host &host) {
    const Connecting &options = config_.connecting;
    connection_ = std::make_unique<Connection>(options);
    deadline_ = limit();
    connection_->connect(host, deadline_);
    probe_.passed("connect", connection_->peer() + " accepts the connection");
    if (options.tls) {
      connection_->start_tls(deadline_);
      probe_.passed("TLS",
                    options.verify ? "the server's certificate is accepted"
                                   : "encrypted, and the server's certificate is not verified",
                    options.verify ? "" : "Leave out enable_ssl_certificate_verification.");
    }
    connection_->log_in(deadline_);
    probe_.passed("login", connection_->product() + (options.user.empty()
                                                         ? " asks for no password"
                                                         : " accepts user \"" + clean_text(options.user) + "\""));
    connection_->check_role();
    probe_.passed("role", connection_->peer() + " is a master");
    connection_->select_database(deadline_);
    connection_->check_ready(deadline_);
    probe_.passed("ready", "database " + std::to_string(options.database) + " can be used");
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
    if (config_.wait_replicas == 0)
      return true;
    std::string least = std::to_string(config_.wait_replicas);
    std::string limit = std::to_string(config_.wait_timeout.count());
    Reply reply = ask({"WAIT", least, limit}, "replicas");
    const std::optional<uint64_t> replicas = number_of(*reply);
    bool enough = replicas && *replicas >= config_.wait_replicas;
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

  void send() {
    TestEvent test;
    Entry entry;
    try {
      config_.check_event(test.event);
      config_.maker.make(test.event, entry);
    } catch (const BadInput &bad) {
      probe_.failed("send", "a test event cannot be sent: " + std::string(bad.what()),
                    "An option is made of values that a test event does not have.");
      return;
    }
    entry.fields.push_back({"header.outbox-probe", "true"});
    Reply reply = connection_->ask(config_.maker.command(entry), deadline_, "send");
    if (is_error(*reply))
      probe_.failed("send", "stream \"" + clean_text(entry.stream) + "\": " + read_error(text_of(*reply)).text);
    else if (!is_entry_id(*reply))
      probe_.failed("send", std::string("XADD is answered with ") + kind_of(*reply) + ", not with the id of an entry",
                    "Is this a Redis server, or something between that changes its replies?");
    else
      probe_.passed("send", "the server has stored a test entry of type " + std::string(TestEvent::type) +
                                " in stream \"" + clean_text(entry.stream) + "\"");
  }

  const RedisConfig &config_;
  Probe &probe_;
  Deadline deadline_;
  std::unique_ptr<Connection> connection_;
};

}  // namespace

void probe_redis(const RedisConfig &config, Probe &probe) {
  try {
    RedisProbe(config, probe).run();
  } catch (const Cancelled &) {
    probe.failed("probe", "no answer in time");
  }
}

}  // namespace outbox::redis
