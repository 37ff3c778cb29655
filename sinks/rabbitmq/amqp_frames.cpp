/*
 * amqp_frames.cpp: librabbitmq writes into a buffer of fixed size, so each function first makes room for the largest
 * possible result and then cuts it.
 */
#include "amqp_frames.h"

#include <algorithm>
#include <new>
#include <stdexcept>

namespace outbox::rabbitmq {
namespace {

constexpr size_t short_string = 256; /* with its length */
constexpr size_t largest_method = 8192;

void append_number(uint64_t number, int bytes, std::string &out) {
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
    out += static_cast<char>(number >> shift);
}

/* Calls encode(buffer) with `room` bytes at the end of `out`. */
template <class Encode> void append_encoded(size_t room, std::string &out, Encode encode) {
  size_t before = out.size();
  out.resize(before + room);
  int length = encode(amqp_bytes_t{room, out.data() + before});
  out.resize(before + static_cast<size_t>(std::max(length, 0)));
  if (length < 0)
    throw std::runtime_error(std::string("librabbitmq cannot encode: ") + amqp_error_string2(length));
}

/* Appends a frame whose payload is appended by add(). */
template <class Add> void append_frame(int type, amqp_channel_t channel, std::string &out, Add add) {
  append_number(static_cast<uint64_t>(type), 1, out);
  append_number(channel, 2, out);
  size_t length_at = out.size();
  append_number(0, 4, out);
  size_t payload_at = out.size();
  add();
  size_t length = out.size() - payload_at;
  for (size_t i = 0; i < 4; i++)
    out[length_at + i] = static_cast<char>(length >> (24 - 8 * i));
  out += static_cast<char>(AMQP_FRAME_END);
}

template <class Append> void all_or_nothing(std::string &out, Append append) {
  size_t before = out.size();
  try {
    append();
  } catch (...) {
    out.resize(before);
    throw;
  }
}

void append_method_frame(amqp_channel_t channel, amqp_method_number_t id, void *method, size_t room,
                         std::string &out) {
  append_frame(AMQP_FRAME_METHOD, channel, out, [&] {
    append_number(id, 4, out);
    append_encoded(room, out, [&](amqp_bytes_t buffer) { return amqp_encode_method(id, method, buffer); });
  });
}

}  // namespace

void append_method(amqp_channel_t channel, amqp_method_number_t id, void *method, std::string &out) {
  all_or_nothing(out, [&] { append_method_frame(channel, id, method, largest_method, out); });
}

void append_heartbeat(std::string &out) {
  all_or_nothing(out, [&] { append_frame(AMQP_FRAME_HEARTBEAT, 0, out, [] {}); });
}

void append_publish(amqp_channel_t channel, std::string_view exchange, std::string_view routing_key,
                    std::string_view properties, std::string_view body, size_t frame_max, std::string &out) {
  amqp_basic_publish_t publish{0, as_bytes(exchange), as_bytes(routing_key), 1, 0};
  all_or_nothing(out, [&] {
    append_method_frame(channel, AMQP_BASIC_PUBLISH_METHOD, &publish, 2 * short_string + 8, out);
    append_frame(AMQP_FRAME_HEADER, channel, out, [&] {
      append_number(AMQP_BASIC_CLASS, 2, out);
      append_number(0, 2, out); /* weight */
      append_number(body.size(), 8, out);
      out += properties;
    });
    for (std::string_view rest = body; !rest.empty();) {
      std::string_view part = rest.substr(0, frame_max - frame_overhead);
      append_frame(AMQP_FRAME_BODY, channel, out, [&] { out += part; });
      rest.remove_prefix(part.size());
    }
  });
}

std::string encode_properties(const amqp_basic_properties_t &properties, size_t headers_size) {
  constexpr size_t per_header = 6; /* the length of the name, the type of the value, and its length */
  size_t room = 16 * short_string + headers_size + per_header * static_cast<size_t>(properties.headers.num_entries);
  std::string encoded;
  amqp_basic_properties_t copy = properties;
  append_encoded(room, encoded,
                 [&](amqp_bytes_t buffer) { return amqp_encode_properties(AMQP_BASIC_CLASS, &copy, buffer); });
  encoded.shrink_to_fit();
  return encoded;
}

/* Each class has a struct of its own, and librabbitmq leaves unset what the flags do not name. */
std::optional<std::string_view> returned_id(const amqp_frame_t &frame) {
  if (frame.frame_type != AMQP_FRAME_HEADER || frame.payload.properties.class_id != AMQP_BASIC_CLASS)
    return std::nullopt;
  const auto &properties = *static_cast<const amqp_basic_properties_t *>(frame.payload.properties.decoded);
  if ((properties._flags & AMQP_BASIC_MESSAGE_ID_FLAG) == 0)
    return std::nullopt;
  return view(properties.message_id);
}

FrameReader::FrameReader() : decoder_(amqp_new_connection(), amqp_destroy_connection) {
  if (!decoder_)
    throw std::bad_alloc();
}

void FrameReader::add(std::string_view bytes) {
  input_.erase(0, read_);
  read_ = 0;
  input_ += bytes;
}

bool FrameReader::next(amqp_frame_t &frame) {
  amqp_maybe_release_buffers(decoder_.get());
  while (read_ < input_.size()) {
    int used = amqp_handle_input(decoder_.get(), {input_.size() - read_, input_.data() + read_}, &frame);
    if (used == AMQP_STATUS_NO_MEMORY)
      throw std::bad_alloc();
    if (used < 0)
      throw std::runtime_error(std::string("it does not speak AMQP 0-9-1: ") + amqp_error_string2(used));
    read_ += static_cast<size_t>(used);
    if (frame.frame_type != 0)
      return true;
  }
  return false;
}

void FrameReader::set_frame_max(uint32_t bytes) {
  if (amqp_tune_connection(decoder_.get(), 0, static_cast<int>(bytes), 0) != AMQP_STATUS_OK)
    throw std::bad_alloc();
}

}  // namespace outbox::rabbitmq
