/* grpc_options.h: the options of servers and user mappings. */
#pragma once

#include <string>

#include "delivery/http/http_headers.h"
#include "delivery/http/http_peer.h"
#include "delivery/options/message_size.h"
#include "grpc_message.h"

namespace outbox::grpc {

inline constexpr OptionName METHOD{"method"};

/* The size of the largest message that gRPC's libraries receive by default. */
constexpr size_t default_max_message = 4'194'304;

/* Immutable once it is parsed. */
struct GrpcOptions : HttpPeer {
  std::string origin; /* of option `url` */
  std::string call_method = "/outbox.v1.Sink/Publish";
  MessageForm form = MessageForm::Event;
  size_t max_message = default_max_message;
  HttpHeaders server_headers, mapping_headers; /* metadata */
  std::string token;

  static const OptionTable<GrpcOptions> &table();
  /* Both throw BadInput. */
  void read_server(const Options &server);
  void read_mapping(const Options &mapping);
};

}  // namespace outbox::grpc
