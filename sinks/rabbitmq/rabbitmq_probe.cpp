/*
 * rabbitmq_probe.cpp: connects as the sink does, host by host, asks for the exchange, and on request publishes a
 * message that says it is a test.
 */
#include "rabbitmq_probe.h"

#include "connection.h"
#include "delivery/base/clean_text.h"
#include "delivery/engine/test_event.h"

namespace outbox::rabbitmq {
namespace {

class RabbitProbe {
public:
  RabbitProbe(const RabbitConfig &config, Probe &probe)
      : config_(config), probe_(probe),
        deadline_(Probe::Clock::now() + std::min(config.connecting.connect_timeout, probe.left()),
                  [&probe] { return probe.over(); }) {}

  void run() {
    const auto &hosts = config_.connecting.hosts;
    bool connected = false;
    for (size_t i = 0; i < hosts.size() && !probe_.over(); i++) {
      try {
        connect(hosts[i]);
        connected = true;
        break;
      } catch (const PeerError &error) {
        failed(error, hosts.size() == 1 ? "" : hosts[i].text() + ": ");
      }
    }
    if (!connected)
      return;
    try {
      if (ask_for_exchange() && probe_.sends())
        send();
    } catch (const PeerError &error) {
      failed(error, "");
    }
  }

private:
  void failed(const PeerError &error, const std::string &host) {
    std::string hint = error.hint;
    if (!hint.empty())
      hint[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(hint[0])));
    probe_.failed(error.step, host + error.what(), hint.empty() ? hint : hint + ".");
  }

  void connect(const Host &host) {
    connection_ = std::make_unique<Connection>(config_.connecting);
    deadline_ = Deadline(Probe::Clock::now() + std::min(config_.connecting.connect_timeout, probe_.left()),
                         [this] { return probe_.over(); });
    connection_->connect(host, deadline_);
    probe_.passed("connect", connection_->peer() + " accepts the connection");
    if (config_.connecting.tls) {
      connection_->start_tls(deadline_);
      probe_.passed("TLS",
                    config_.connecting.verify ? "the broker's certificate is accepted"
                                              : "encrypted, and the broker's certificate is not verified",
                    config_.connecting.verify ? "" : "Leave out enable_ssl_certificate_verification.");
    }
    connection_->log_in(deadline_);
    probe_.passed("login", connection_->product() + " accepts " + config_.connecting.who());
    connection_->open_vhost(deadline_);
    connection_->open_channels(deadline_);
    probe_.passed("vhost", "\"" + config_.connecting.vhost + "\" is open");
  }

  bool ask_for_exchange() {
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
    amqp_frame_t frame = connection_->wait_method(asking, deadline_, "exchange");
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

  void send() {
    TestEvent test;
    Content content;
    try {
      config_.check_event(test.event);
      config_.maker.make(test.event, content);
    } catch (const BadInput &bad) {
      probe_.failed("send", "a test event cannot be sent: " + std::string(bad.what()),
                    "An option is made of values that a test event does not have.");
      return;
    }
    amqp_table_entry_t mark{amqp_cstring_bytes("outbox-probe"), {}};
    mark.value.kind = AMQP_FIELD_KIND_UTF8;
    mark.value.value.bytes = amqp_cstring_bytes("true");
    content.headers.push_back(mark);
    content.properties.headers = {static_cast<int>(content.headers.size()), content.headers.data()};
    content.properties._flags |= AMQP_BASIC_HEADERS_FLAG;
    append_publish(publishing, content.exchange, content.routing_key,
                   encode_properties(content.properties, content.headers_size + 64),
                   std::string_view(content.body.data ? content.body.data : "", content.body.len), config_.mandatory,
                   connection_->frame_max(), connection_->out());
    report(content);
  }

  void report(const Content &content) {
    const std::string where =
        "exchange \"" + content.exchange + "\" with routing key \"" + content.routing_key + "\"";
    bool returned = false;
    for (;;) {
      amqp_frame_t frame = connection_->wait_method(publishing, deadline_, "send");
      if (as<amqp_basic_return_t>(frame)) {
        returned = true;
      } else if (as<amqp_basic_ack_t>(frame)) {
        if (returned)
          probe_.failed("send", "no queue is bound to " + where,
                        "Bind a queue, or correct the options exchange and routing_key. A queue may be bound for "
                        "other types of events only. An exchange of type x-delayed-message returns what it delivers: "
                        "set option mandatory 'false' for it.");
        else
          probe_.passed("send", "the broker has stored a test message of type " + std::string(TestEvent::type) +
                                    " in " + where);
        return;
      } else if (as<amqp_basic_nack_t>(frame)) {
        probe_.failed("send", "the broker has refused the test message for " + where,
                      "Is a queue full (x-max-length with reject-publish)?");
        return;
      } else if (auto *close = as<amqp_channel_close_t>(frame)) {
        probe_.failed("send", "the broker refuses the test message: " + peer_text(view(close->reply_text)),
                      "See the broker's log.");
        return;
      }
    }
  }

  const RabbitConfig &config_;
  Probe &probe_;
  Deadline deadline_;
  std::unique_ptr<Connection> connection_;
};

}  // namespace

void probe_rabbitmq(const RabbitConfig &config, Probe &probe) {
  try {
    RabbitProbe(config, probe).run();
  } catch (const Cancelled &) {
    probe.failed("probe", "no answer in time");
  }
}

}  // namespace outbox::rabbitmq
