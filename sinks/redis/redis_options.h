/* redis_options.h: the options of servers and user mappings. */
#pragma once

#include <optional>
#include <string>

#include "delivery/formats/format_options.h"
#include "delivery/net/connect_options.h"
#include "delivery/options/message_size.h"
#include "delivery/options/template.h"

namespace outbox::redis {

inline constexpr OptionName STREAM{"stream"}, MAXLEN{"maxlen"}, WAIT_REPLICAS{"wait_replicas"};

/* Of WAIT: when the sink says that replicas are missing. It then asks again, so no event fails by it. */
constexpr const char *wait_timeout_ms = "1000";

/* Immutable once it is parsed. */
struct RedisOptions : ConnectOptions, FormatOptions {
  RedisOptions()
      : ConnectOptions({.noun = "server",
                        .port = "6379",
                        .tls_port = "6379",
                        .answered = "replied",
                        .message = "command",
                        .any_target = "stream ",
                        .target_works = "can be written"}) {}

  Template stream = Template::parse(STREAM, "outbox.event.${aggregate_type}");
  std::optional<int64_t> maxlen;
  int database = 0;
  uint32_t wait_replicas = 0;
  uint32_t max_in_flight = 2000;
  size_t max_message = 16'777'216;
  std::string user = "default", password; /* no password: no login */

  static const OptionTable<RedisOptions> &table();
  /* Of ConnectOptions::parse(). */
  void check_server(const Options &server) const;
  void check_mapping(const Options &mapping) const;
};

}  // namespace outbox::redis
