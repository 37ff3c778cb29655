#include "memory_sink.h"

#include "delivery/options/option_table.h"

#include <algorithm>
#include <mutex>
#include <thread>

#include "delivery/engine/probe.h"

using namespace outbox;

namespace memory {

Control &control(const std::string &sink) {
  static auto &mutex = *new std::mutex; /* probes use it on threads of their own */
  static auto &all = *new std::map<std::string, Control>;
  std::lock_guard lock(mutex);
  return all[sink];
}

void Control::end(uint64_t ticket, Outcome outcome, std::string error, int64_t retry_after_ms) {
  held.erase(std::find(held.begin(), held.end(), ticket));
  reporter->complete(Completion{
      {.outcome = outcome, .error = std::move(error), .retry_after_ms = retry_after_ms}, ticket, key_of[ticket]});
}

namespace {

struct Config : SinkConfig {
  uint32_t capacity = 100;
  void check_event(const ob_event &event) const override {
    if (view(event.event_type) == "forbidden")
      throw BadInput(OB_BAD_VALUE, "event_type", "event type is forbidden", "The memory sink does not take it.");
  }
  Preview preview(const ob_event &event, int64_t) const override {
    return {{"type", {}, std::string(view(event.event_type)), {}},
            {"header", "empty", "", {}},
            {"key", {}, {}, {}},
            {"number", {}, {}, std::to_string(capacity)}};
  }
};

class MemorySink : public Sink {
public:
  MemorySink(const std::string &name, std::shared_ptr<const Config> config, std::shared_ptr<Reporter> reporter)
      : control_(control(name)), config_(std::move(config)), hang_(control_.hang) {
    control_.reporter = std::move(reporter);
    control_.held.clear();
  }
  ~MemorySink() override {
    if (hang_) {
      hang_->let_go.get_future().wait();
      hang_->gone.set_value();
    }
  }
  uint32_t credit() const override { return config_->capacity - static_cast<uint32_t>(control_.held.size()); }
  std::span<const uint32_t> order(const ob_event *, size_t n) override {
    return n == control_.order.size() ? control_.order : std::span<const uint32_t>();
  }
  Submitted submit(const ob_event &event) override {
    if (credit() == 0 || event.ticket == control_.no_room_for)
      return false;
    if (event.ticket == control_.no_memory_for)
      throw std::bad_alloc();
    if (event.ticket == control_.unfit)
      throw BadInput(OB_BAD_VALUE, "payload", "event does not fit", "It never will.");
    if (event.is_test && !control_.ends_of_test_events.empty()) {
      const Outcome outcome = control_.ends_of_test_events.front();
      control_.ends_of_test_events.erase(control_.ends_of_test_events.begin());
      Completion ended{{outcome, "the peer says no"}, event.ticket, event.key_hash};
      ended.hint = "Ask the peer.";
      ended.acknowledgement = "number 7";
      control_.reporter->complete(std::move(ended)); /* as a sink's thread does */
      return true;
    }
    if (auto ends = control_.ends_at_once.find(event.ticket); ends != control_.ends_at_once.end())
      return Completion{{ends->second, "at once"}, event.ticket, event.key_hash};
    control_.held.push_back(event.ticket);
    control_.key_of[event.ticket] = event.key_hash;
    return true;
  }
  void flush() override { control_.flushes++; }
  void pause() override { control_.pauses++; }
  void release_queued() override { /* all events count as being on the wire */
  }
  void abandon() override {
    while (!control_.held.empty())
      control_.end(control_.held.front(), Outcome::Returned);
  }

private:
  Control &control_;
  std::shared_ptr<const Config> config_;
  std::shared_ptr<Hang> hang_;
};

constexpr OptionName PATH{"path"};

struct MemoryOptions {
  uint32_t capacity = Config().capacity;
  std::string token, path;
};

const OptionTable<MemoryOptions> &table() {
  static const auto &made =
      *new OptionTable<MemoryOptions>(row("capacity", &MemoryOptions::capacity, Integer{1, 1000}, "Events held."),
                                      row("token", &MemoryOptions::token, Text{}, "A secret.").as_secret(),
                                      row(PATH, &MemoryOptions::path, Text{}, "For superusers.").by_superuser());
  return made;
}

class MemoryKind : public SinkKind {
public:
  MemoryKind() : SinkKind("memory") {}
  const std::vector<OptionSpec> &options() const override { return table().specs(); }
  std::vector<OptionName> target_options() const override { return {PATH}; }
  void check_mapping(const Options &mapping) const override {
    MemoryOptions options;
    table().read(mapping, OB_USER_MAPPING, options);
  }
  std::shared_ptr<const SinkConfig> parse(const Options &server, const Options *, Owner) const override {
    MemoryOptions options;
    table().read(server, OB_SERVER, options);
    auto config = std::make_shared<Config>();
    config->capacity = options.capacity;
    return config;
  }
  std::unique_ptr<Sink> open(const std::string &name, std::shared_ptr<const SinkConfig> config,
                             std::shared_ptr<Reporter> reporter) const override {
    return std::make_unique<MemorySink>(name, std::static_pointer_cast<const Config>(config), std::move(reporter));
  }
  std::shared_ptr<void> probe(std::shared_ptr<const SinkConfig>, Probe &probe) const override {
    Control &control = memory::control(probe.sink());
    while (control.probe_hangs && !probe.over())
      std::this_thread::sleep_for(Probe::slice);
    if (probe.over())
      probe.failed("connect", "nothing came");
    else {
      probe.passed("connect", control.probe_says, control.probe_says);
      probe.can_deliver();
    }
    static auto &mutex = *new std::mutex; /* a test starts several probes of one sink */
    std::lock_guard lock(mutex);
    return std::move(control.remains);
  }
  KindDefaults defaults(const Options &) const override { return {3, "1s..2s"}; }
};

[[maybe_unused]] const SinkKind &registered = *new MemoryKind;

}  // namespace
}  // namespace memory
