/* fuzz.cpp: frames of AMQP, of each type, class and method, at once and in pieces. */
#include "test/fuzz/stream.h"

#include <utility>

#include "delivery/net/peer_error.h"
#include "sinks/rabbitmq/amqp_frames.h"

using namespace outbox;
using namespace outbox::rabbitmq;

namespace {

constexpr uint32_t frame_max = 8192;

struct Reader : FrameReader {
  bool tuned = false; /* after the first frame, as when one logs in */
};

void append(const amqp_bytes_t &bytes, std::string &out) {
  (out += view(bytes)) += '|';
}

void append(const amqp_field_value_t &value, size_t depth, std::string &out);

void append(const amqp_table_t &table, size_t depth, std::string &out) {
  HOLDS(depth <= frame_max);
  for (int i = 0; i < table.num_entries; i++) {
    append(table.entries[i].key, out);
    append(table.entries[i].value, depth + 1, out);
  }
}

void append(const amqp_field_value_t &value, size_t depth, std::string &out) {
  out += static_cast<char>(value.kind);
  if (value.kind == AMQP_FIELD_KIND_UTF8 || value.kind == AMQP_FIELD_KIND_BYTES)
    append(value.value.bytes, out);
  else if (value.kind == AMQP_FIELD_KIND_TABLE)
    append(value.value.table, depth, out);
  else if (value.kind == AMQP_FIELD_KIND_ARRAY)
    for (int i = 0; i < value.value.array.num_entries; i++)
      append(value.value.array.entries[i], depth + 1, out);
}

/* The method, if it is this one, with every part of it. Returns how many were appended: 0 or 1. */
template <class Method> int append_if(const amqp_frame_t &frame, std::string &out) {
  const auto *method = as<Method>(frame);
  if (!method)
    return 0;
  if constexpr (requires { method->reply_text; })
    append(method->reply_text, out);
  if constexpr (requires { method->reply_code; })
    out += std::to_string(method->reply_code);
  if constexpr (requires { method->reason; })
    append(method->reason, out);
  if constexpr (requires { method->exchange; })
    append(method->exchange, out);
  if constexpr (requires { method->routing_key; })
    append(method->routing_key, out);
  if constexpr (requires { method->delivery_tag; })
    out += std::to_string(method->delivery_tag) + (method->multiple ? "m" : "s");
  if constexpr (requires { method->frame_max; })
    out += std::to_string(method->frame_max) + "," + std::to_string(method->heartbeat);
  if constexpr (requires { method->server_properties; }) {
    append(method->server_properties, 0, out);
    append(method->mechanisms, out);
    append(method->locales, out);
  }
  return 1;
}

std::string text_of(const amqp_frame_t &frame) {
  std::string out = std::to_string(frame.frame_type) + "," + std::to_string(frame.channel) + ",";
  const int known =
      append_if<amqp_connection_start_t>(frame, out) + append_if<amqp_connection_tune_t>(frame, out) +
      append_if<amqp_connection_open_ok_t>(frame, out) + append_if<amqp_connection_close_t>(frame, out) +
      append_if<amqp_connection_blocked_t>(frame, out) + append_if<amqp_connection_unblocked_t>(frame, out) +
      append_if<amqp_channel_open_ok_t>(frame, out) + append_if<amqp_channel_close_t>(frame, out) +
      append_if<amqp_confirm_select_ok_t>(frame, out) + append_if<amqp_exchange_declare_ok_t>(frame, out) +
      append_if<amqp_basic_ack_t>(frame, out) + append_if<amqp_basic_nack_t>(frame, out) +
      append_if<amqp_basic_return_t>(frame, out);
  const auto id = returned_id(frame);
  HOLDS(known + id.has_value() <= 1);
  HOLDS(frame.channel <= last_channel);
  if (frame.frame_type == AMQP_FRAME_METHOD)
    out += std::to_string(frame.payload.method.id);
  if (id)
    out += *id;
  if (frame.frame_type == AMQP_FRAME_BODY)
    append(frame.payload.body_fragment, out);
  return out;
}

bool read_all(Reader &reader, std::string_view bytes, fuzz::Seen &seen) {
  try {
    reader.add(bytes);
    amqp_frame_t frame;
    while (reader.next(frame)) {
      HOLDS(seen.units.emplace_back(text_of(frame)).size() <= 16 * frame_max);
      if (!std::exchange(reader.tuned, true))
        reader.set_frame_max(frame_max);
    }
    return true;
  } catch (const std::runtime_error &error) {
    seen.error = error.what();
    return false;
  }
}

/* Frames whose lengths are right: the first byte of each is its type, the next ones channel and size. */
std::string framed(std::string_view data) {
  std::string out;
  while (data.size() >= 3) {
    const char type = data[0], channel = static_cast<char>(data[1] - '0');
    const size_t size = std::min<size_t>(static_cast<unsigned char>(data[2]), data.size() - 3);
    (out += type).append({'\0', channel, '\0', '\0', '\0', static_cast<char>(size)});
    (out += data.substr(3, size)) += static_cast<char>(AMQP_FRAME_END);
    data.remove_prefix(3 + size);
  }
  return out;
}

}  // namespace

void fuzz::one_input(std::string_view data) {
  Input input(data);
  const size_t mode = input.digit(), piece = 1 + mode % 64;
  const std::string rest = input.rest();
  read_whole_and_in_pieces<Reader>(mode % 2 ? framed(rest) : rest, piece, read_all);
}
