/*
 * amqp_frames.h: AMQP 0-9-1 frames as bytes. librabbitmq encodes and decodes them; its sockets are not used, because
 * they block (transport.h). Not thread-safe: each connection has its own.
 */
#pragma once

#include <amqp.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace outbox::rabbitmq {

inline amqp_bytes_t as_bytes(std::string_view text) {
  return {text.size(), const_cast<char *>(text.data())};
}
inline std::string_view view(const amqp_bytes_t &bytes) {
  return {static_cast<const char *>(bytes.bytes), bytes.len};
}

/* The channels of a sink, besides 0. A broker closes the channel on which it refuses a message, with all messages in
 * flight there: so a message to a target that was refused before is tried on a channel of its own. */
constexpr amqp_channel_t publishing = 1, asking = 2, trying = 3, last_channel = trying;

/* The bytes of a frame that are not its payload. */
constexpr size_t frame_overhead = 8;
/* A frame of properties begins with class, weight and the size of the body. */
constexpr size_t properties_overhead = 12;

void append_method(amqp_channel_t channel, amqp_method_number_t id, void *method, std::string &out);
void append_heartbeat(std::string &out);
/* The frames of one message. `properties` are encoded ones. */
void append_publish(amqp_channel_t channel, std::string_view exchange, std::string_view routing_key,
                    std::string_view properties, std::string_view body, bool mandatory, size_t frame_max,
                    std::string &out);
/* `headers_size`: the bytes of all names and values of the headers. */
std::string encode_properties(const amqp_basic_properties_t &properties, size_t headers_size);

/* Which method each struct of librabbitmq is. */
template <class Method> inline constexpr amqp_method_number_t number_of = 0;
template <> inline constexpr amqp_method_number_t number_of<amqp_connection_start_t> = AMQP_CONNECTION_START_METHOD;
template <> inline constexpr amqp_method_number_t number_of<amqp_connection_tune_t> = AMQP_CONNECTION_TUNE_METHOD;
template <>
inline constexpr amqp_method_number_t number_of<amqp_connection_open_ok_t> = AMQP_CONNECTION_OPEN_OK_METHOD;
template <> inline constexpr amqp_method_number_t number_of<amqp_connection_close_t> = AMQP_CONNECTION_CLOSE_METHOD;
template <>
inline constexpr amqp_method_number_t number_of<amqp_connection_blocked_t> = AMQP_CONNECTION_BLOCKED_METHOD;
template <>
inline constexpr amqp_method_number_t number_of<amqp_connection_unblocked_t> = AMQP_CONNECTION_UNBLOCKED_METHOD;
template <> inline constexpr amqp_method_number_t number_of<amqp_channel_open_ok_t> = AMQP_CHANNEL_OPEN_OK_METHOD;
template <> inline constexpr amqp_method_number_t number_of<amqp_channel_close_t> = AMQP_CHANNEL_CLOSE_METHOD;
template <> inline constexpr amqp_method_number_t number_of<amqp_confirm_select_ok_t> = AMQP_CONFIRM_SELECT_OK_METHOD;
template <>
inline constexpr amqp_method_number_t number_of<amqp_exchange_declare_ok_t> = AMQP_EXCHANGE_DECLARE_OK_METHOD;
template <> inline constexpr amqp_method_number_t number_of<amqp_basic_ack_t> = AMQP_BASIC_ACK_METHOD;
template <> inline constexpr amqp_method_number_t number_of<amqp_basic_nack_t> = AMQP_BASIC_NACK_METHOD;
template <> inline constexpr amqp_method_number_t number_of<amqp_basic_return_t> = AMQP_BASIC_RETURN_METHOD;

/* The frame's method if it is this one, else null. A peer sends whatever it likes, whenever it likes: this function
 * and returned_id() are the only ways to what librabbitmq has decoded, and both look at what it is first. */
template <class Method> const Method *as(const amqp_frame_t &frame) {
  static_assert(number_of<Method> != 0, "which method is it?");
  if (frame.frame_type != AMQP_FRAME_METHOD || frame.payload.method.id != number_of<Method>)
    return nullptr;
  return static_cast<const Method *>(frame.payload.method.decoded);
}
/* The id in the properties of a message; nothing for another frame, another class, or properties without an id. */
std::optional<std::string_view> returned_id(const amqp_frame_t &frame);

/* Cuts a stream of bytes into frames. librabbitmq gets whole ones only, of the channels that the sink opens: it keeps
 * memory for each channel that it has seen. */
class FrameReader {
public:
  FrameReader(); /* throws std::bad_alloc */

  void add(std::string_view bytes);
  /* Returns false when no complete frame is there. A frame and what it points to are valid until the next call.
   * Throws std::bad_alloc, and std::runtime_error if the bytes are not AMQP. */
  bool next(amqp_frame_t &frame);
  /* The agreed size of a frame. */
  void set_frame_max(uint32_t bytes);

private:
  size_t whole_frame() const;

  std::unique_ptr<amqp_connection_state_t_, int (*)(amqp_connection_state_t)> decoder_;
  std::string input_;
  size_t read_ = 0; /* of input_ */
  bool begun_ = false;
};

}  // namespace outbox::rabbitmq
