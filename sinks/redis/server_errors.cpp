/*
 * server_errors.cpp: Redis begins its errors with a word of capitals, its error code; only texts with the code ERR
 * must be compared themselves.
 */
#include "server_errors.h"

#include <array>

#include "delivery/base/clean_text.h"

namespace outbox::redis {
namespace {

struct Known {
  std::string_view begin;
  Fault fault;
  ob_reason reason;
  const char *hint;
};

constexpr const char *mapping = "look at user and password in the user mapping";
constexpr const char *cluster = "Redis Cluster is not supported: name a server without cluster mode in option hosts";

constexpr std::array known{
    Known{"OOM ", Fault::Server, OB_REASON_BROKER,
          "raise maxmemory of the server, delete or trim what it holds, or set option maxlen"},
    Known{"MISCONF ", Fault::Server, OB_REASON_BROKER, "the server cannot write to its disk: look at its log"},
    Known{"NOREPLICAS ", Fault::Server, OB_REASON_BROKER,
          "fewer replicas are connected, or keep up, than min-replicas-to-write of the server asks for"},
    Known{"BUSY ", Fault::Server, OB_REASON_BROKER, "it goes on by itself when the script has ended"},
    Known{"LOADING ", Fault::Host, OB_REASON_BROKER, "it goes on by itself when the server has read its data"},
    Known{"READONLY ", Fault::Host, OB_REASON_BROKER, "it is a replica: option hosts must also name the master"},
    Known{"MASTERDOWN ", Fault::Host, OB_REASON_BROKER, "it is a replica: option hosts must also name the master"},
    Known{"UNBLOCKED ", Fault::Host, OB_REASON_BROKER, "the server has become a replica"},
    Known{"NOAUTH ", Fault::Host, OB_REASON_AUTH, "give the user mapping a password, and a user if it has a name"},
    Known{"WRONGPASS ", Fault::Host, OB_REASON_AUTH, mapping},
    Known{"DENIED ", Fault::Host, OB_REASON_AUTH,
          "the server is in protected mode: give its users passwords, or set protected-mode no"},
    Known{"WRONGTYPE ", Fault::Stream, OB_REASON_TOPIC,
          "rename or delete the key that has this name, or correct option stream"},
    Known{"MOVED ", Fault::Host, OB_REASON_BROKER, cluster},
    Known{"ASK ", Fault::Host, OB_REASON_BROKER, cluster},
    Known{"CLUSTERDOWN ", Fault::Host, OB_REASON_BROKER, cluster},
    Known{"TRYAGAIN ", Fault::Host, OB_REASON_BROKER, cluster},
    Known{"ERR Protocol error: invalid bulk length", Fault::Event, OB_REASON_TOO_LARGE,
          "raise proto-max-bulk-len of the server, or lower option max_message"},
    Known{"ERR The stream has exhausted", Fault::Stream, OB_REASON_TOPIC,
          "rename or delete the stream, or correct option stream"},
    Known{"ERR max number of clients", Fault::Host, OB_REASON_CONNECTION, "raise maxclients of the server"},
    Known{"ERR DB index is out of range", Fault::Host, OB_REASON_BROKER,
          "correct option database, or raise databases of the server"},
    Known{"ERR invalid DB index", Fault::Host, OB_REASON_BROKER, "correct option database"},
    Known{"ERR SELECT is not allowed in cluster mode", Fault::Host, OB_REASON_BROKER, cluster},
    Known{"ERR unknown command 'HELLO'", Fault::Host, OB_REASON_BROKER, "Redis 6 or later is required"},
    Known{"ERR unknown command `HELLO`", Fault::Host, OB_REASON_BROKER, "Redis 6 or later is required"},
};

/* A rule for keys leaves out single streams, one for commands concerns all events. */
Known permission(std::string_view said) {
  if (said.find(" key") != said.npos)
    return {{}, Fault::Stream, OB_REASON_AUTH, "let the user write to it: ACL SETUSER name ~pattern"};
  return {{}, Fault::Server, OB_REASON_AUTH, "let the user run XADD, SELECT, PING and WAIT: ACL SETUSER name +xadd"};
}

Known find(std::string_view said) {
  if (said.starts_with("NOPERM "))
    return permission(said);
  for (const Known &each : known)
    if (said.starts_with(each.begin))
      return each;
  return {{}, Fault::Unknown, OB_REASON_BROKER, nullptr};
}

}  // namespace

ServerError read_error(std::string_view said) {
  /* Servers repeat what they do not understand, such as HELLO with its password, and cut it where they like. */
  constexpr std::string_view arguments = ", with args beginning with";
  const Known found = find(said);
  said = said.substr(0, said.find(arguments));
  while (said.ends_with('.'))
    said.remove_suffix(1);
  std::string text = peer_text(said);
  if (found.hint)
    (text += ": ") += found.hint;
  return {found.fault, found.reason, std::move(text)};
}

}  // namespace outbox::redis
