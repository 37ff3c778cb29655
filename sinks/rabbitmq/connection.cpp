/*
 * connection.cpp: the handshake of AMQP 0-9-1, step by step: start, tune, open. RabbitMQ says why it refuses a login
 * only to clients that announce `authentication_failure_close`, and that it has blocked publishing only to those that
 * announce `connection.blocked`.
 */
#include "connection.h"

#include <algorithm>
#include <array>

#include "delivery/base/clean_text.h"
#include "delivery/base/text.h"

namespace outbox::rabbitmq {
namespace {

constexpr int protocol_header = 'A'; /* librabbitmq's type of a frame that is none */

amqp_table_entry_t text_entry(const char *name, std::string_view text) {
  amqp_table_entry_t entry{amqp_cstring_bytes(name), {}};
  entry.value.kind = AMQP_FIELD_KIND_UTF8;
  entry.value.value.bytes = as_bytes(text);
  return entry;
}
amqp_table_entry_t yes_entry(const char *name) {
  amqp_table_entry_t entry{amqp_cstring_bytes(name), {}};
  entry.value.kind = AMQP_FIELD_KIND_BOOLEAN;
  entry.value.value.boolean = 1;
  return entry;
}

}  // namespace

Connection::~Connection() {
  if (!open_)
    return;
  try {
    amqp_connection_close_t close{AMQP_REPLY_SUCCESS, amqp_cstring_bytes("closed"), 0, 0};
    send(0, AMQP_CONNECTION_CLOSE_METHOD, &close);
    flush();
  } catch (...) { /* the broker sees the end of the connection anyway */
  }
}

bool Connection::next(amqp_frame_t &frame) {
  try {
    return reader_.next(frame);
  } catch (const std::runtime_error &error) {
    throw PeerError("login", OB_REASON_CONNECTION, peer() + ": " + error.what(),
                    "is this the port of a RabbitMQ broker, and does it want TLS?");
  }
}

PeerError Connection::closed_by_broker(const amqp_connection_close_t &close) {
  std::string text = in_quotes(view(close.reply_text));
  const int code = close.reply_code;
  open_ = false;
  try {
    amqp_connection_close_ok_t ok{};
    send(0, AMQP_CONNECTION_CLOSE_OK_METHOD, &ok);
    flush();
  } catch (const PeerError &) { /* it is gone already */
  }
  std::string fact = "the broker closed the connection: " + std::to_string(code) + " " + text;
  return {"connect", code == AMQP_CONNECTION_FORCED ? OB_REASON_CONNECTION : OB_REASON_BROKER, fact};
}

amqp_frame_t Connection::wait_method(amqp_channel_t channel, const Deadline &deadline, const char *step) {
  amqp_frame_t frame;
  wait_for(reader_, deadline, step, [&] {
    while (next(frame)) {
      if (frame.frame_type == protocol_header)
        throw PeerError(step, OB_REASON_CONNECTION, peer() + " speaks another version of AMQP than 0-9-1",
                        "is this the port of a RabbitMQ broker?");
      if (frame.frame_type == AMQP_FRAME_METHOD && frame.channel == channel)
        return true;
      if (frame.channel != 0)
        continue;
      if (auto *close = as<amqp_connection_close_t>(frame))
        throw closed_by_broker(*close);
      if (auto *blocked = as<amqp_connection_blocked_t>(frame))
        throw PeerError(step, OB_REASON_BROKER,
                        "the broker has blocked publishing: " + in_quotes(view(blocked->reason)),
                        "rabbitmqctl status shows alarms");
    }
    return false;
  });
  return frame;
}

void Connection::connect(const Host &host, const Deadline &deadline) {
  transport_.resolve(host);
  transport_.connect(deadline);
  passed("connect", peer() + " accepts the connection");
}

void Connection::read_start(const amqp_connection_start_t &start) {
  const char *wanted = options_.external() ? "EXTERNAL" : "PLAIN";
  auto offered = split(view(start.mechanisms), ' ');
  if (std::find(offered.begin(), offered.end(), wanted) == offered.end())
    throw PeerError("login", OB_REASON_AUTH, "the broker does not offer the login mechanism " + std::string(wanted),
                    options_.external()
                        ? "enable its plugin rabbitmq_auth_mechanism_ssl, or give the user mapping a user"
                        : "enable PLAIN in the broker's auth_mechanisms");
  std::string name, version;
  for (int i = 0; i < start.server_properties.num_entries; i++) {
    const amqp_table_entry_t &entry = start.server_properties.entries[i];
    if (entry.value.kind != AMQP_FIELD_KIND_UTF8)
      continue;
    if (view(entry.key) == "product")
      name = view(entry.value.value.bytes);
    else if (view(entry.key) == "version")
      version = view(entry.value.value.bytes);
  }
  product_ = peer_text(name + " " + version);
}

void Connection::send_start_ok() {
  std::array capabilities{yes_entry("authentication_failure_close"), yes_entry("connection.blocked"),
                          yes_entry("publisher_confirms"), yes_entry("basic.nack")};
  amqp_table_entry_t capability_table{amqp_cstring_bytes("capabilities"), {}};
  capability_table.value.kind = AMQP_FIELD_KIND_TABLE;
  capability_table.value.value.table = {static_cast<int>(capabilities.size()), capabilities.data()};
  std::array properties{text_entry("product", "outbox"), text_entry("platform", "PostgreSQL"),
                        text_entry("connection_name", "outbox"), capability_table};
  std::string response;
  if (!options_.external())
    response.append(1, '\0').append(options_.user).append(1, '\0').append(options_.password);
  amqp_connection_start_ok_t ok{{static_cast<int>(properties.size()), properties.data()},
                                amqp_cstring_bytes(options_.external() ? "EXTERNAL" : "PLAIN"),
                                as_bytes(response),
                                amqp_cstring_bytes("en_US")};
  send(0, AMQP_CONNECTION_START_OK_METHOD, &ok);
}

void Connection::log_in(const Deadline &deadline) {
  constexpr char header[] = "AMQP\0\0\x09\x01";
  out_.append(header, sizeof header - 1);
  amqp_frame_t frame = wait_method(0, deadline, "login");
  auto *start = as<amqp_connection_start_t>(frame);
  if (!start)
    throw PeerError("login", OB_REASON_CONNECTION, peer() + " does not begin as a RabbitMQ broker does");
  read_start(*start);
  send_start_ok();

  std::string who = options_.external() ? "by the client's certificate" : "of user " + in_quotes(options_.user);
  const char *look = options_.external() ? "look at ssl_certificate_pem in the user mapping"
                                         : "look at user and password in the user mapping";
  try {
    frame = wait_method(0, deadline, "login");
  } catch (const PeerError &lost) {
    if (lost.reason != OB_REASON_CONNECTION)
      throw;
    throw PeerError("login", OB_REASON_AUTH, "the broker hung up at the login " + who, look);
  }
  if (auto *close = as<amqp_connection_close_t>(frame)) {
    std::string said = closed_by_broker(*close).what();
    bool loopback = said.find("can only connect via localhost") != said.npos;
    throw PeerError("login", OB_REASON_AUTH, "the login " + who + " was refused: " + said,
                    loopback ? "make a user of the broker for outbox, and give it to the user mapping" : look);
  }
  auto *tune = as<amqp_connection_tune_t>(frame);
  if (!tune)
    throw PeerError("login", OB_REASON_AUTH, "the broker asks for more at the login " + who, look);

  if (tune->frame_max != 0 && tune->frame_max < AMQP_FRAME_MIN_SIZE)
    throw PeerError("login", OB_REASON_BROKER,
                    "the broker wants frames of at most " + std::to_string(tune->frame_max) +
                        " bytes, and AMQP 0-9-1 " + "has at least " + std::to_string(AMQP_FRAME_MIN_SIZE),
                    "raise frame_max of the broker");
  if (tune->frame_max != 0)
    frame_max_ = std::min<size_t>(frame_max_, tune->frame_max);
  heartbeat_ = options_.heartbeat;
  amqp_connection_tune_ok_t ok{last_channel, static_cast<uint32_t>(frame_max_),
                               static_cast<uint16_t>(heartbeat_.count())};
  reader_.set_frame_max(static_cast<uint32_t>(frame_max_));
  send(0, AMQP_CONNECTION_TUNE_OK_METHOD, &ok);
  passed("login", product_ + " accepts " + options_.who());
}

void Connection::open_vhost(const Deadline &deadline) {
  amqp_connection_open_t ask{as_bytes(options_.vhost), {}, 0};
  std::string vhost = "vhost " + in_quotes(options_.vhost);
  send(0, AMQP_CONNECTION_OPEN_METHOD, &ask);
  amqp_frame_t frame = wait_method(0, deadline, "vhost");
  if (auto *close = as<amqp_connection_close_t>(frame)) {
    std::string said = closed_by_broker(*close).what();
    bool refused = said.find("refused") != said.npos;
    throw PeerError("vhost", OB_REASON_AUTH, vhost + " cannot be opened: " + said,
                    refused ? "give user " + in_quotes(options_.user) +
                                  " permissions in it: rabbitmqctl set_permissions -p"
                            : "correct option vhost, or create it: rabbitmqctl add_vhost");
  }
  if (!as<amqp_connection_open_ok_t>(frame))
    throw PeerError("vhost", OB_REASON_BROKER, vhost + " cannot be opened");
  open_ = true;
}

void Connection::open_publishing(amqp_channel_t channel) {
  amqp_channel_open_t open{};
  amqp_confirm_select_t confirm{0};
  send(channel, AMQP_CHANNEL_OPEN_METHOD, &open);
  send(channel, AMQP_CONFIRM_SELECT_METHOD, &confirm);
}

void Connection::open_asking() {
  amqp_channel_open_t channel{};
  send(asking, AMQP_CHANNEL_OPEN_METHOD, &channel);
}

void Connection::close_channel_ok(amqp_channel_t channel) {
  amqp_channel_close_ok_t ok{};
  std::string bytes;
  append_method(channel, AMQP_CHANNEL_CLOSE_OK_METHOD, &ok, bytes);
  answer(bytes);
}

template <class Method> void Connection::wait_opened(amqp_channel_t channel, const Deadline &deadline) {
  amqp_frame_t frame = wait_method(channel, deadline, "channel");
  if (as<Method>(frame))
    return;
  auto *close = as<amqp_channel_close_t>(frame);
  throw PeerError("channel", OB_REASON_BROKER,
                  "the broker gives no channel: " +
                      (close ? in_quotes(view(close->reply_text)) : std::string("it answers with another method")));
}

/* One after the other: in the broker each channel is a process of its own, so the answers of two of them come in any
 * order, and wait_method() skips those of the other one. */
void Connection::open_channels(const Deadline &deadline) {
  for (amqp_channel_t channel : {publishing, trying}) {
    open_publishing(channel);
    wait_opened<amqp_channel_open_ok_t>(channel, deadline);
    wait_opened<amqp_confirm_select_ok_t>(channel, deadline);
  }
  open_asking();
  wait_opened<amqp_channel_open_ok_t>(asking, deadline);
  passed("vhost", "\"" + options_.vhost + "\" is open");
}

void Connection::open(const Host &host, const Deadline &deadline) {
  connect(host, deadline);
  if (options_.tls)
    start_tls(deadline);
  log_in(deadline);
  open_vhost(deadline);
  open_channels(deadline);
}

}  // namespace outbox::rabbitmq
