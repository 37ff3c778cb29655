/* nats_options.h: the options of servers and user mappings. */
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "delivery/base/secret_mask.h"
#include "delivery/formats/format_options.h"
#include "delivery/net/connect_options.h"
#include "delivery/options/message_size.h"
#include "delivery/options/template.h"
#include "nkey.h"

namespace outbox::nats {

inline constexpr OptionName SUBJECT{"subject"}, STREAM{"stream"}, CREDENTIALS{"credentials"};

/* Immutable once it is parsed. */
struct NatsOptions : ConnectOptions, FormatOptions {
  NatsOptions()
      : ConnectOptions({.noun = "server",
                        .port = "4222",
                        .tls_port = "4222",
                        .answered = "acknowledged",
                        .message = "message",
                        .any_target = "subject \"",
                        .target_works = "is stored again"}) {}

  Template subject = Template::parse(SUBJECT, "outbox.event.${aggregate_type}.${event_type}");
  std::string stream; /* empty: any */
  uint32_t max_in_flight = 2000;
  size_t max_message = 1'048'576; /* the default of a server's max_payload */
  std::chrono::seconds heartbeat{30};
  std::string inbox_prefix = "_INBOX";
  std::string user, password, token;
  std::optional<Credentials> credentials;

  static const OptionTable<NatsOptions> &table();
  /* Of ConnectOptions::parse(). */
  void check_server(const Options &server) const;
  void check_mapping(const Options &mapping);
  /* As what the sink logs in, for texts: "user \"app\"". */
  std::string who() const;
};

}  // namespace outbox::nats
