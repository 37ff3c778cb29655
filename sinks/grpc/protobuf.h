/*
 * protobuf.h: protobuf's wire format, as far as the few messages need it. Of what is written, a field without
 * presence is left out if it has its default value, as protoc's code does, so both write the same bytes.
 */
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace outbox::grpc {

enum class WireType { Varint = 0, Fixed64 = 1, Bytes = 2, Fixed32 = 5 };

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

/* Reads the fields of a message one after the other. */
class ProtobufReader {
public:
  explicit ProtobufReader(std::string_view message) : rest_(message) {}

  /* False at the end, and at bytes that are no field. */
  bool next() {
    uint64_t tag = 0, size = 0;
    varint_ = 0;
    bytes_ = {};
    if (!read(tag))
      return false;
    number_ = tag >> 3;
    switch (static_cast<WireType>(tag & 7)) {
    case WireType::Varint:
      return read(varint_);
    case WireType::Fixed64:
      return take(8);
    case WireType::Bytes:
      return read(size) && take(size);
    case WireType::Fixed32:
      return take(4);
    }
    return false;
  }
  uint64_t number() const { return number_; }
  uint64_t varint() const { return varint_; }       /* 0 for a field of another type */
  std::string_view bytes() const { return bytes_; } /* empty for a varint */

private:
  bool read(uint64_t &value) {
    for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const uint64_t byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80)
        return true;
    }
    return false;
  }
  bool take(uint64_t size) {
    if (size > rest_.size())
      return false;
    bytes_ = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return true;
  }

  std::string_view rest_, bytes_;
  uint64_t number_ = 0, varint_ = 0;
};

}  // namespace outbox::grpc
