/*
 * publish.cpp: librabbitmq alone: publishes persistent messages with confirms, as its documentation shows it, with at
 * most WINDOW of them unconfirmed. publish PORT EXCHANGE MESSAGES WINDOW PAYLOAD_BYTES prints the seconds that it
 * took.
 */
#include <amqp.h>
#include <amqp_tcp_socket.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

static void must(bool good, const char *what) {
  if (!good) {
    fprintf(stderr, "%s failed\n", what);
    exit(1);
  }
}

static amqp_bytes_t bytes(const std::string &text) {
  return {text.size(), const_cast<char *>(text.data())};
}

/* Takes confirms: those that are there, or with `wait` at least one. */
static void confirm(amqp_connection_state_t connection, std::set<uint64_t> &unconfirmed, bool wait) {
  timeval none{0, 0};
  for (;;) {
    amqp_frame_t frame;
    int status = amqp_simple_wait_frame_noblock(connection, &frame, wait ? nullptr : &none);
    if (status == AMQP_STATUS_TIMEOUT)
      return;
    must(status == AMQP_STATUS_OK, "wait");
    must(frame.frame_type == AMQP_FRAME_METHOD && frame.payload.method.id == AMQP_BASIC_ACK_METHOD, "confirm");
    auto *ack = static_cast<amqp_basic_ack_t *>(frame.payload.method.decoded);
    if (ack->multiple)
      unconfirmed.erase(unconfirmed.begin(), unconfirmed.upper_bound(ack->delivery_tag));
    else
      unconfirmed.erase(ack->delivery_tag);
    amqp_maybe_release_buffers(connection);
    wait = false;
  }
}

int main(int, char **arguments) {
  const int port = atoi(arguments[1]);
  const std::string exchange = arguments[2];
  const uint64_t messages = strtoull(arguments[3], nullptr, 10);
  const size_t window = strtoull(arguments[4], nullptr, 10), payload = strtoull(arguments[5], nullptr, 10);
  amqp_connection_state_t connection = amqp_new_connection();
  must(amqp_socket_open(amqp_tcp_socket_new(connection), "127.0.0.1", port) == AMQP_STATUS_OK, "connect");
  must(amqp_login(connection, "/", 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, "guest", "guest").reply_type ==
           AMQP_RESPONSE_NORMAL,
       "login");
  must(amqp_channel_open(connection, 1) && amqp_confirm_select(connection, 1), "channel");

  const std::string body = "{\"x\": \"" + std::string(payload - 9, 'x') + "\"}", type = "order.made",
                    key = "Order.order.made", content_type = "application/json";
  std::set<uint64_t> unconfirmed;
  auto start = std::chrono::steady_clock::now();
  for (uint64_t n = 1; n <= messages; n++) {
    char id[37];
    snprintf(id, sizeof id, "01a20bc5-30a9-716d-95da-%012lx", n);
    amqp_table_entry_t header{amqp_cstring_bytes("id"), {}};
    header.value.kind = AMQP_FIELD_KIND_UTF8;
    header.value.value.bytes = amqp_cstring_bytes(id);
    amqp_basic_properties_t properties{};
    properties._flags = AMQP_BASIC_CONTENT_TYPE_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_MESSAGE_ID_FLAG |
                        AMQP_BASIC_TIMESTAMP_FLAG | AMQP_BASIC_TYPE_FLAG | AMQP_BASIC_HEADERS_FLAG;
    properties.content_type = bytes(content_type);
    properties.delivery_mode = 2;
    properties.message_id = amqp_cstring_bytes(id);
    properties.timestamp = 1'700'000'000;
    properties.type = bytes(type);
    properties.headers = {1, &header};
    unconfirmed.insert(n);
    must(amqp_basic_publish(connection, 1, bytes(exchange), bytes(key), 1, 0, &properties, bytes(body)) ==
             AMQP_STATUS_OK,
         "publish");
    confirm(connection, unconfirmed, unconfirmed.size() >= window);
  }
  while (!unconfirmed.empty())
    confirm(connection, unconfirmed, true);
  std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  printf("%.3f\n", took.count());
  amqp_connection_close(connection, AMQP_REPLY_SUCCESS);
  amqp_destroy_connection(connection);
}
