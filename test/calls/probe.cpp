/* probe.cpp: probes of both kinds. A probe ends, with steps or without, or its worker does; the next one finds all
 * well. */
#include "test/unit/fault_server.h"
#include "test/unit/kafka_broker.h"

#include "scenario.h"

namespace calls {
namespace {

/* Returns whether all steps passed. */
bool probe(Worker &worker, const char *kind, const OptionList &options, std::string &steps_text) {
  ob_error error{};
  ob_probe *probe = under_test(
      [&] { return border::probe_start(worker.engine(), "main", kind, options, {}, 10'000, false, &error); });
  if (!probe) {
    if (error.message[0] == '\0')
      failed("no probe was started, without a message");
    return false;
  }
  ob_probe_step steps[32];
  size_t n = 0;
  for (int waits = 0; !under_test([&] { return probe->kind->probe_poll(probe, steps, std::size(steps), &n); });
       waits++) {
    if (waits > 40)
      failed("a probe does not end");
    if (!worker.wait(1000) && waits > 15 &&
        under_test([&] { return probe->kind->probe_poll(probe, steps, std::size(steps), &n); }))
      failed("a probe ended without a wake-up");
    worker.collect();
    if (worker.is_out_of_memory())
      break;
  }
  under_test([&] {
    ob_release(probe);
    return true;
  });
  if (worker.is_out_of_memory())
    return false;
  bool good = n > 0;
  for (size_t i = 0; i < n; i++) {
    good = good && steps[i].ok;
    steps_text += std::string(steps[i].name) + (steps[i].ok ? " ok: " : " failed: ") + steps[i].message + "\n";
  }
  return good;
}

void probe_twice(const char *kind, const OptionList &options) {
  Worker worker;
  std::string text;
  if (probe(worker, kind, options, text))
    return;
  worker.collect();
  if (worker.is_out_of_memory())
    worker.begin_again();
  if (!probe(worker, kind, options, text))
    failed("two probes failed:\n%s", text.c_str());
}

const Scenario probe_webhook("probe-webhook", [] {
  FaultServer peer([](const HttpRequest &, FaultServer::Peer &client) { return client.answer(200); });
  const std::string url = peer.url();
  probe_twice("webhook", {{"url", url.c_str()}, {"allow_http", "true"}, {"allow_networks", "127.0.0.0/8"}});
});

const Scenario probe_kafka("probe-kafka", [] {
  KafkaBroker broker;
  broker.create_topic("orders", 3);
  probe_twice("kafka", {{"bootstrap_servers", broker.address()}, {"topic", "orders"}});
});

}  // namespace
}  // namespace calls
