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

void append_method_frame(amqp_channel_t channel, amqp_method_number_t id, void *method, size_t room,
                         std::string &out) {
  append_frame(AMQP_FRAME_METHOD, channel, out, [&] {
    append_number(id, 4, out);
    append_encoded(room, out, [&](amqp_bytes_t buffer) { return amqp_encode_method(id, method, buffer); });
  });
}

}  // namespace

void append_method(amqp_channel_t channel, amqp_method_number_t id, void *method, std::string &out) {
  append_method_frame(channel, id, method, largest_method, out);
}

void append_heartbeat(std::string &out) {
  append_frame(AMQP_FRAME_HEARTBEAT, 0, out, [] {});
}

void append_publish(amqp_channel_t channel, std::string_view exchange, std::string_view routing_key,
                    std::string_view properties, std::string_view body, bool mandatory, size_t frame_max,
                    std::string &out) {
  amqp_basic_publish_t publish{0, as_bytes(exchange), as_bytes(routing_key), mandatory, 0};
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

/* The size of the next frame; 0 if it is not there as a whole. What cannot become a frame is refused at its head. */
size_t FrameReader::whole_frame() const {
  constexpr size_t head = 7; /* type, channel, size */
  const std::string_view rest = std::string_view(input_).substr(read_);
  auto refuse = [](const std::string &why) { throw std::runtime_error("it does not speak AMQP 0-9-1: " + why); };
  auto number = [rest](size_t at, size_t bytes) {
    size_t value = 0;
    for (size_t i = at; i < at + bytes; i++)
      value = value << 8 | static_cast<unsigned char>(rest[i]);
    return value;
  };
  constexpr std::string_view other_version = "AMQP"; /* and four bytes of it: the broker knows no 0-9-1 */
  if (!begun_ && !rest.empty() && rest[0] == other_version[0]) {
    if (!rest.starts_with(other_version.substr(0, rest.size())))
      refuse("its first frame is none");
    return rest.size() < frame_overhead ? 0 : frame_overhead;
  }
  if (!rest.empty() && rest[0] != AMQP_FRAME_METHOD && rest[0] != AMQP_FRAME_HEADER && rest[0] != AMQP_FRAME_BODY &&
      rest[0] != AMQP_FRAME_HEARTBEAT)
    refuse("a frame has no type");
  if (rest.size() < head)
    return 0;
  if (number(1, 2) > last_channel)
    refuse("a frame is of a channel that is not open");
  const auto most = static_cast<size_t>(amqp_get_frame_max(decoder_.get()));
  const size_t size = number(3, 4) + frame_overhead;
  if (size > most)
    refuse("a frame has " + std::to_string(size) + " bytes, and at most " + std::to_string(most) + " are agreed");
  return rest.size() < size ? 0 : size;
}

bool FrameReader::next(amqp_frame_t &frame) {
  amqp_maybe_release_buffers(decoder_.get());
  while (size_t size = whole_frame()) {
    int used = amqp_handle_input(decoder_.get(), {size, input_.data() + read_}, &frame);
    if (used == AMQP_STATUS_NO_MEMORY)
      throw std::bad_alloc();
    if (used < 0)
      throw std::runtime_error(std::string("it does not speak AMQP 0-9-1: ") + amqp_error_string2(used));
    begun_ = true;
    if (static_cast<size_t>(used) != size)
      throw std::runtime_error("it does not speak AMQP 0-9-1: a frame has no end");
    read_ += size;
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
