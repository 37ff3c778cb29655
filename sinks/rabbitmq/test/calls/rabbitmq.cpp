/*
 * rabbitmq.cpp: each allocation and each call of a RabbitMQ sink fails once (test/calls), against a broker in this
 * process that knows as much of AMQP as a publisher needs.
 */
#include <sys/socket.h>
#include <netinet/in.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <thread>

#include "sinks/rabbitmq/amqp_frames.h"
#include "test/calls/scenario.h"

extern "C" const struct ob_sink_kind *outbox_make_sink_kind(const char *version, int pg_version) noexcept;

namespace calls {
namespace {

using outbox::rabbitmq::append_method;
using outbox::rabbitmq::as_bytes;
using outbox::rabbitmq::FrameReader;

constexpr int rabbit_keys = 3, rabbit_events = 3;

[[maybe_unused]] const bool made = outbox_make_sink_kind("1.0", 150000) != nullptr;

/* Decides the fate of the n-th message, counted over all connections. */
enum class Fate { Ack, AckAll, Nack, Return, CloseChannel, HangUp, Ignore };
using Fates = Fate (*)(int n);

class Broker {
public:
  explicit Broker(Fates fates, int missing = 0)
      : fates_(fates), missing_(missing), listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(listener_, reinterpret_cast<sockaddr *>(&address), size) != 0 || listen(listener_, 8) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr *>(&address), &size) != 0)
      failed("no listener");
    host = "localhost:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this] { serve(); });
  }
  ~Broker() {
    shutdown(listener_, SHUT_RDWR);
    if (int peer = peer_; peer >= 0)
      shutdown(peer, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  Broker(const Broker &) = delete;

  std::string host;
  Received received;

private:
  struct Channel {
    uint64_t tag = 0;     /* of the last message */
    std::string id;       /* of the message whose body comes next */
    bool closing = false; /* closed, and the client has not confirmed it: what it has sent meanwhile is dropped */
  };

  void serve() {
    for (;;) {
      int peer = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (peer < 0)
        return;
      peer_ = peer;
      talk(peer);
      peer_ = -1;
      close(peer);
    }
  }

  template <class Method> static void say(int peer, amqp_channel_t channel, amqp_method_number_t id, Method method) {
    std::string out;
    append_method(channel, id, &method, out);
    send(peer, out.data(), out.size(), MSG_NOSIGNAL);
  }

  void talk(int peer) {
    char header[8], buffer[4096];
    if (recv(peer, header, sizeof header, MSG_WAITALL) != sizeof header)
      return;
    amqp_connection_start_t start{};
    start.version_minor = 9;
    start.mechanisms = amqp_cstring_bytes("PLAIN");
    start.locales = amqp_cstring_bytes("en_US");
    say(peer, 0, AMQP_CONNECTION_START_METHOD, start);
    FrameReader reader;
    channels_.clear();
    for (;;) {
      amqp_frame_t frame;
      while (reader.next(frame))
        if (!answer(peer, frame))
          return;
      ssize_t n = recv(peer, buffer, sizeof buffer, 0);
      if (n <= 0)
        return;
      reader.add({buffer, static_cast<size_t>(n)});
    }
  }

  bool answer(int peer, const amqp_frame_t &frame) {
    Channel &channel = channels_[frame.channel];
    if (frame.frame_type == AMQP_FRAME_METHOD && frame.payload.method.id == AMQP_CHANNEL_CLOSE_OK_METHOD)
      channel = {};
    if (channel.closing)
      return true;
    if (frame.frame_type == AMQP_FRAME_HEADER) {
      channel.id = outbox::rabbitmq::returned_id(frame).value_or("");
      return true;
    }
    if (frame.frame_type == AMQP_FRAME_BODY)
      return published(peer, frame.channel, channel,
                       std::string(outbox::rabbitmq::view(frame.payload.body_fragment)));
    if (frame.frame_type != AMQP_FRAME_METHOD)
      return true;
    switch (frame.payload.method.id) {
    case AMQP_CONNECTION_START_OK_METHOD:
      say(peer, 0, AMQP_CONNECTION_TUNE_METHOD, amqp_connection_tune_t{2047, 131072, 60});
      return true;
    case AMQP_CONNECTION_OPEN_METHOD:
      say(peer, 0, AMQP_CONNECTION_OPEN_OK_METHOD, amqp_connection_open_ok_t{});
      return true;
    case AMQP_CHANNEL_OPEN_METHOD:
      say(peer, frame.channel, AMQP_CHANNEL_OPEN_OK_METHOD, amqp_channel_open_ok_t{});
      return true;
    case AMQP_CONFIRM_SELECT_METHOD:
      say(peer, frame.channel, AMQP_CONFIRM_SELECT_OK_METHOD, amqp_confirm_select_ok_t{});
      return true;
    case AMQP_EXCHANGE_DECLARE_METHOD:
      if (missing_-- > 0)
        close_channel(peer, frame.channel, channel, AMQP_EXCHANGE_DECLARE_METHOD);
      else
        say(peer, frame.channel, AMQP_EXCHANGE_DECLARE_OK_METHOD, amqp_exchange_declare_ok_t{});
      return true;
    case AMQP_CONNECTION_CLOSE_METHOD:
      return false;
    default:
      return true;
    }
  }

  static void close_channel(int peer, amqp_channel_t number, Channel &channel, amqp_method_number_t why) {
    channel.closing = true;
    say(peer, number, AMQP_CHANNEL_CLOSE_METHOD,
        amqp_channel_close_t{404, amqp_cstring_bytes("NOT_FOUND"), static_cast<uint16_t>(why >> 16),
                             static_cast<uint16_t>(why)});
  }

  bool published(int peer, amqp_channel_t number, Channel &channel, const std::string &body) {
    const uint64_t tag = ++channel.tag;
    Fate fate = fates_(n_++);
    if (fate == Fate::Ack || fate == Fate::AckAll)
      received.add(body);
    switch (fate) {
    case Fate::Ack:
    case Fate::AckAll:
      say(peer, number, AMQP_BASIC_ACK_METHOD, amqp_basic_ack_t{tag, fate == Fate::AckAll});
      return true;
    case Fate::Nack:
      say(peer, number, AMQP_BASIC_NACK_METHOD, amqp_basic_nack_t{tag, 0, 0});
      return true;
    case Fate::Return: {
      say(peer, number, AMQP_BASIC_RETURN_METHOD,
          amqp_basic_return_t{312, amqp_cstring_bytes("NO_ROUTE"), amqp_cstring_bytes("e"), amqp_cstring_bytes("k")});
      amqp_basic_properties_t properties{};
      properties._flags = AMQP_BASIC_MESSAGE_ID_FLAG;
      properties.message_id = as_bytes(channel.id);
      std::string out;
      outbox::rabbitmq::append_publish(number, "", "", outbox::rabbitmq::encode_properties(properties, 0), body, true,
                                       131072, out);
      out.erase(0, out.find(static_cast<char>(AMQP_FRAME_END)) + 1); /* its method is the return above */
      send(peer, out.data(), out.size(), MSG_NOSIGNAL);
      say(peer, number, AMQP_BASIC_ACK_METHOD, amqp_basic_ack_t{tag, 0});
      return true;
    }
    case Fate::CloseChannel:
      close_channel(peer, number, channel, AMQP_BASIC_PUBLISH_METHOD);
      return true;
    case Fate::HangUp:
      return false;
    case Fate::Ignore:
      break;
    }
    return true;
  }

  const Fates fates_;
  std::atomic<int> missing_;
  const int listener_;
  std::atomic<int> peer_{-1};
  std::map<amqp_channel_t, Channel> channels_; /* of the connection */
  int n_ = 0;
  std::thread thread_;
};

void deliver_by(Broker &broker) {
  {
    Worker worker;
    worker.open("rabbitmq", {{"hosts", broker.host.c_str()}, {"exchange", "e"}, {"connect_timeout", "3s"}},
                {{"user", "app"}, {"password", "secret"}});
    worker.deliver(rabbit_keys, rabbit_events);
    worker.close(5000);
  }
  broker.received.check(rabbit_keys, rabbit_events);
}

const Scenario rabbit_plain("rabbitmq", [] {
  Broker broker([](int n) { return n % 2 == 0 ? Fate::Ack : Fate::AckAll; });
  deliver_by(broker);
});

const Scenario rabbit_failing("rabbitmq-failing", [] {
  Broker broker(
      [](int n) {
        return n == 1   ? Fate::Nack
               : n == 3 ? Fate::Return
               : n == 5 ? Fate::HangUp
               : n == 7 ? Fate::CloseChannel
                        : Fate::Ack;
      },
      1);
  deliver_by(broker);
});

/* It is closed with events in flight. */
const Scenario rabbit_closed("rabbitmq-closed", [] {
  Broker broker([](int) { return Fate::Ignore; });
  Worker worker;
  worker.open("rabbitmq", {{"hosts", broker.host.c_str()}, {"exchange", "e"}});
  worker.submit_some(rabbit_keys, rabbit_events);
  worker.wait(50);
  worker.collect();
  worker.close(100);
});

}  // namespace
}  // namespace calls
