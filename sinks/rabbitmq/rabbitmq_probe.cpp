/* rabbitmq_probe.cpp: asks for the exchange. */
#include "rabbitmq_probe.h"

#include "connection.h"
#include "delivery/base/clean_text.h"
#include "delivery/net/peer_probe.h"

namespace outbox::rabbitmq {
namespace {

class RabbitProbe final : public PeerProbe<RabbitConfig, Connection> {
public:
  using PeerProbe::PeerProbe;

private:
  bool ask() override {
    const std::string exchange = config_.maker.exchange_glob();
    if (config_.maker.exchange_varies() || exchange.empty()) {
      probe_.passed("exchange", exchange.empty() ? "the default exchange is always there"
                                                 : "which exchange it is depends on the event: \"" + exchange + "\"");
      return true;
    }
    amqp_exchange_declare_t declare{};
    declare.exchange = as_bytes(exchange);
    declare.type = amqp_cstring_bytes("direct");
    declare.passive = 1;
    connection_->send(asking, AMQP_EXCHANGE_DECLARE_METHOD, &declare);
    amqp_frame_t frame = connection_->wait_method(asking, deadline(), "exchange");
    if (as<amqp_exchange_declare_ok_t>(frame)) {
      probe_.passed("exchange", "\"" + exchange + "\" is there");
      return true;
    }
    if (auto *close = as<amqp_channel_close_t>(frame))
      probe_.failed("exchange", "\"" + exchange + "\" cannot be used: " + peer_text(view(close->reply_text)),
                    "Declare it, or correct option exchange. Events wait until it is there.");
    else
      probe_.failed("exchange", "the broker answers the question for \"" + exchange + "\" with another method");
    return false;
  }
};

}  // namespace

void probe_rabbitmq(const RabbitConfig &config, Probe &probe) {
  RabbitProbe(config, probe).run();
}

}  // namespace outbox::rabbitmq
