/*
 * protobuf.h: writes protobuf's wire format: the few types that one message needs. A field without presence is left
 * out if it has its default value, as protoc's code does, so both write the same bytes.
 */
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace outbox::grpc {

enum class WireType { Varint = 0, Bytes = 2 };

inline size_t varint_size(uint64_t value) {
  size_t size = 1;
  for (; value >= 0x80; value >>= 7)
    size++;
  return size;
}

/* The bytes of a field with a number below 16 whose content has `content` bytes: tag, length, content. */
inline size_t bytes_field_size(size_t content) {
  return 1 + varint_size(content) + content;
}

class ProtobufWriter {
public:
  explicit ProtobufWriter(std::string &out) : out_(out) {}

  /* Also if the value is the default one. */
  void varint(int field, uint64_t value) {
    tag(field, WireType::Varint);
    raw_varint(value);
  }
  void bytes(int field, std::string_view value) {
    tag(field, WireType::Bytes);
    raw_varint(value.size());
    out_.append(value);
  }

  void varint_if_not_default(int field, uint64_t value) {
    if (value != 0)
      varint(field, value);
  }
  void bytes_if_not_default(int field, std::string_view value) {
    if (!value.empty())
      bytes(field, value);
  }

private:
  void tag(int field, WireType type) { raw_varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(type)); }
  void raw_varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7)
      out_ += static_cast<char>(value | 0x80);
    out_ += static_cast<char>(value);
  }

  std::string &out_;
};

}  // namespace outbox::grpc
