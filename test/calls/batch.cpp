/* batch.cpp: the engine with a sink in memory: a BatchSink, as a kind of sink outside of the core has one. */
#include "delivery/engine/batch_sink.h"
#include "scenario.h"

namespace calls {
namespace {

using outbox::BatchSink;
using outbox::KindDefaults;
using outbox::OptionName;
using outbox::Options;
using outbox::OptionSpec;
using outbox::Owner;
using outbox::Reporter;
using outbox::Sink;
using outbox::SinkConfig;
using outbox::SinkKind;
using outbox::view;

constexpr int list_keys = 3, list_events = 3;

Received &received() {
  static auto &all = *new Received;
  return all;
}

int refuse_left = 1; /* the batch in which a message is refused */

struct ListConfig : SinkConfig {
  void check_event(const ob_event &) const override {}
};

class ListKind final : public SinkKind {
public:
  ListKind() : SinkKind("list") {}
  const std::vector<OptionSpec> &options() const override {
    static const auto &none = *new std::vector<OptionSpec>;
    return none;
  }
  std::vector<OptionName> target_options() const override { return {}; }
  std::shared_ptr<const SinkConfig> parse(const Options &, const Options *, Owner) const override {
    return std::make_shared<ListConfig>();
  }
  std::unique_ptr<Sink> open(const std::string &, std::shared_ptr<const SinkConfig>,
                             std::shared_ptr<Reporter> reporter) const override {
    return std::make_unique<BatchSink>(
        std::move(reporter), [](const ob_event &event) { return std::string(view(event.payload)); },
        [](const std::vector<std::string> &messages) {
          if (messages.size() > 1 && refuse_left > 0) {
            refuse_left--;
            received().add(messages[0]);
            return BatchSink::Outcome::failed(1, BatchSink::Failure::Retry, "not this one");
          }
          for (const std::string &message : messages)
            received().add(message);
          return BatchSink::Outcome::sent();
        },
        4);
  }
  KindDefaults defaults(const Options &) const override { return {3, "1s..2s"}; }
};

[[maybe_unused]] const SinkKind &list_kind = *new ListKind;

const Scenario engine("engine", [] {
  {
    Worker worker;
    worker.open("list", {});
    worker.deliver(list_keys, list_events);
    worker.close(1000);
  }
  received().check(list_keys, list_events);
});

}  // namespace
}  // namespace calls
