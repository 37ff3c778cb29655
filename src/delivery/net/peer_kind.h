/*
 * peer_kind.h: what follows from the options, the messages and the thread of a kind of sink that keeps a connection
 * to its peer: its configuration, its sink as the main thread sees it, and the kind.
 */
#pragma once

#include <memory>
#include <vector>

#include "delivery/engine/probe.h"
#include "delivery/engine/send_queue.h"
#include "delivery/engine/sink.h"
#include "delivery/net/connect_options.h"
#include "delivery/options/message_size.h"

namespace outbox {

/* `KindOptions` derives from ConnectOptions, and `Maker` from RecordMaker. The maker is made of the options, and has
 *   a type Content, and preview_of(content)
 *   make(event, content): throws BadInput if the event cannot be sent
 *   message(event, content): what the sink's thread sends
 *   check(event): the check at enqueue time, when only the payload's length is known; returns the least size
 *   too_large: how it says that an event is larger than option max_message allows. */
template <class KindOptions, class Maker> class PeerConfig final : public SinkConfig {
public:
  using OptionsOf = KindOptions;
  using Content = typename Maker::Content;

  PeerConfig(const Options &server, const Options *mapping, Owner owner) /* throws BadInput */
      : options(ConnectOptions::parse<KindOptions>(server, mapping, owner)), maker(options) {}

  void check_event(const ob_event &event) const override {
    check_message_size(maker.check(event), options.max_message, Maker::too_large);
  }
  void check_new_event(const ob_event &event) const override { maker.check_new(event); }
  size_t max_payload() const override { return maker.max_payload(options.max_message); }
  Preview preview(const ob_event &event, int64_t /*now*/) const override {
    Content content;
    maker.make(event, content);
    return preview_of(content);
  }

  const KindOptions options;
  const Maker maker;
};

/* `Thread` is a PeerSender, made of the configuration and a reporter. */
template <class Config, class Thread> class PeerSink final : public Sink {
public:
  PeerSink(std::shared_ptr<const Config> config, std::shared_ptr<Reporter> reporter)
      : config_(config), thread_(std::move(config), std::move(reporter)) {
    thread_.launch();
  }
  ~PeerSink() override {
    thread_.shut_down(thread_.queue().event());
  } /* waits for the thread, and so for a resolver */

  void keep_acknowledgements(bool keep) override { thread_.queue().keep_acknowledgements(keep); }
  uint32_t credit() const override { return thread_.queue().credit(); }
  Submitted submit(const ob_event &event) override {
    if (credit() == 0)
      return false;
    config_->maker.make(event, content_);
    thread_.queue().push(config_->maker.message(event, content_));
    return true;
  }
  void flush() override { thread_.queue().wake_if_needed(); }
  void poll() override { thread_.queue().report_failures(); }
  void pause() override { thread_.queue().begin_outage(); }
  void release_queued() override { thread_.queue().release_queued("not sent yet"); }
  void abandon() override { thread_.queue().abandon(); }

private:
  const std::shared_ptr<const Config> config_;
  Thread thread_;
  typename Config::Content content_;
};

/* `try_out(config, probe)` is the kind's probe. */
template <class Config, class Thread, auto try_out> class PeerKind : public SinkKind {
public:
  using SinkKind::SinkKind;
  using KindOptions = typename Config::OptionsOf;

  const std::vector<OptionSpec> &options() const override { return KindOptions::table().specs(); }
  std::vector<OptionName> target_options() const override { return {HOSTS}; }
  void check_mapping(const Options &mapping) const override {
    KindOptions options;
    ConnectOptions::read_mapping(mapping, options);
  }
  std::shared_ptr<const SinkConfig> parse(const Options &server, const Options *mapping, Owner owner) const override {
    return std::make_shared<Config>(server, mapping, owner);
  }
  std::unique_ptr<Sink> open(const std::string & /*name*/, std::shared_ptr<const SinkConfig> config,
                             std::shared_ptr<Reporter> reporter) const override {
    return std::make_unique<PeerSink<Config, Thread>>(std::static_pointer_cast<const Config>(std::move(config)),
                                                      std::move(reporter));
  }
  std::shared_ptr<void> probe(std::shared_ptr<const SinkConfig> config, Probe &probe) const override {
    try_out(static_cast<const Config &>(*config), probe);
    return nullptr;
  }
  std::vector<Advice> advise(const SinkConfig &config, const Options &server, const Options *mapping) const override {
    const KindOptions &options = static_cast<const Config &>(config).options;
    std::vector<Advice> found = options.advise(server);
    advise(options, server, mapping, found);
    return found;
  }
  KindDefaults defaults(const Options &server) const override {
    KindOptions options;
    KindOptions::table().read_one(server, MAX_MESSAGE, options);
    return {.max_attempts = 10, .retry = "100ms..5min", .largest_message = options.max_message};
  }

private:
  /* Adds the kind's own advice. */
  virtual void advise(const KindOptions &options, const Options &server, const Options *mapping,
                      std::vector<Advice> &found) const = 0;
};

}  // namespace outbox
