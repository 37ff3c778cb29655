/* advice.cpp: mistakes in options that every kind with an address can make. */
#include "delivery/engine/advice.h"

#include <arpa/inet.h>

namespace outbox {

/* "name 'value'", quoted as SQL: owners choose the values, and users paste the statement. */
static std::string assignment(OptionName name, std::string_view value) {
  std::string text = std::string(name) + " '";
  for (char c : value)
    text.append(c == '\'' ? 2 : 1, c);
  return text + "'";
}

static const char *verb(const Options &options, OptionName name) {
  return find_option(options, name) ? "SET " : "ADD ";
}

std::string set_option(const Options &server, OptionName name, const std::string &value) {
  return std::string("ALTER SERVER ") + the_sink + " OPTIONS (" + verb(server, name) + assignment(name, value) + ");";
}

std::string set_in_mapping(const Options *mapping,
                           std::initializer_list<std::pair<OptionName, const char *>> values) {
  std::string list;
  for (const auto &[name, value] : values)
    list.append(list.empty() ? "" : ", ").append(mapping ? verb(*mapping, name) : "").append(assignment(name, value));
  return std::string(mapping ? "ALTER" : "CREATE") + " USER MAPPING FOR PUBLIC SERVER " + the_sink + " OPTIONS (" +
         list + ");";
}

bool is_this_machine(std::string_view host) {
  if (host.starts_with('[') && host.ends_with(']'))
    host = host.substr(1, host.size() - 2);
  const std::string name(host);
  in_addr v4{};
  in6_addr v6{};
  if (inet_pton(AF_INET, name.c_str(), &v4) == 1)
    return ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
  if (inet_pton(AF_INET6, name.c_str(), &v6) == 1)
    return IN6_IS_ADDR_LOOPBACK(&v6);
  return name == "localhost";
}

}  // namespace outbox
