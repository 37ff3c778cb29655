/*
 * protocol.h: the text protocol of NATS: what a server sends, taken apart, and the operations of a publisher.
 * (https://docs.nats.io/reference/reference-protocols/nats-protocol)
 *
 * Why not libnats: 3.4.1, Debian 12's, keeps a line of the server however long it is (parser.c, argBuf) and a message
 * of up to 2 GB (msgBuf), so a peer chooses how much memory the worker takes; it looks names up and connects by
 * itself (natsSock_ConnectTcp), so no network guard can judge the address; and it sends no server name in TLS. It
 * would replace protocol.cpp, connection.cpp and nkey.cpp, 500 lines, less what calls it.
 */
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace outbox::nats {

/* One operation of the server. The views are valid until the next call of OperationReader. */
struct Operation {
  enum class Kind { Info, Message, Ping, Pong, Ok, Error };
  Kind kind;
  std::string_view text;             /* of Info its JSON, of Error its words without quotes, of Message its body */
  std::string_view subject, headers; /* of Message; headers as they came, empty if it has none */
  /* The status in the headers, such as "503"; empty if there is none. */
  std::string_view status() const;
};

/* The peer does not speak NATS. The text contains nothing of what it has sent. */
struct NotNats : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class OperationReader {
public:
  void add(std::string_view bytes);
  /* False if no operation is complete. Throws NotNats. */
  bool next(Operation &operation);
  bool empty() const { return at_ == bytes_.size(); }

private:
  bool read_message(std::string_view line, bool with_headers, Operation &operation);

  std::string bytes_;
  size_t at_ = 0; /* what is before has been read */
};

/* The facts in the INFO of a server. */
struct ServerInfo {
  std::string version, nonce;
  size_t max_payload = 0;
  bool headers = false, tls_required = false, tls_available = false;
  static ServerInfo parse(std::string_view json);
};

/* HPUB; `headers` is a block of headers as header_block_begin and append_header() write it. */
constexpr std::string_view header_block_begin = "NATS/1.0\r\n", header_block_end = "\r\n";
void append_header(std::string_view name, std::string_view value, std::string &block);
/* `data`: the block of headers, then the body. */
void append_publish(std::string_view subject, std::string_view reply, std::string_view data, size_t headers_size,
                    std::string &out);
/* PUB without headers. */
void append_request(std::string_view subject, std::string_view reply, std::string_view body, std::string &out);

}  // namespace outbox::nats
