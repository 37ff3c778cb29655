/*
 * manual.cpp: the kind of sink whose events the user's own dispatcher claims with outbox.claim(). It sends nothing,
 * has only the common options, and accepts any event.
 */
#include "delivery/engine/probe.h"
#include "delivery/engine/sink.h"

namespace outbox {
namespace {

[[noreturn]] void refuse(const char *what) {
  throw BadInput(OB_BAD_VALUE, {}, what,
                 "Events of a sink of kind outbox_manual are claimed as rows, by outbox.claim().",
                 "Use SELECT * FROM outbox.claim('name'), or look at outbox.events.");
}

class ManualConfig final : public SinkConfig {
public:
  void check_event(const ob_event &) const override {}
  Preview preview(const ob_event &, int64_t) const override { refuse("nothing would be sent for the event"); }
};

class ManualKind final : public SinkKind {
public:
  ManualKind() : SinkKind("manual") {}
  const std::vector<OptionSpec> &options() const override {
    static const std::vector<OptionSpec> none;
    return none;
  }
  std::vector<OptionName> target_options() const override { return {}; }
  std::shared_ptr<const SinkConfig> parse(const Options &, const Options *, Owner) const override {
    return std::make_shared<ManualConfig>();
  }
  std::unique_ptr<Sink> open(const std::string &, std::shared_ptr<const SinkConfig>,
                             std::shared_ptr<Reporter>) const override {
    refuse("the worker delivers nothing for the sink");
  }
  std::shared_ptr<void> probe(std::shared_ptr<const SinkConfig>, Probe &) const override {
    refuse("there is nothing to probe");
  }
  KindDefaults defaults(const Options &) const override { return {10, "100ms..5min"}; }
};

[[maybe_unused]] const auto *const manual_kind = new ManualKind;

}  // namespace
}  // namespace outbox
