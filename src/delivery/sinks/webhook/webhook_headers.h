/* webhook_headers.h: which header fields HTTP and this sink allow. */
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace outbox {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

/* Throws BadInput for what is not legal in HTTP. */
void check_http_header(std::string_view name, std::string_view value);

/* Those of an option: a flat JSON object. Authorization and Content-Type are let through: who asks knows whether they
 * may stand there. Throws BadInput. */
HttpHeaders parse_headers(const std::string &name, const std::string &value);

bool is_header_name(std::string_view name);

/* Characters that no header's value may have. */
bool has_control(std::string_view value);

/* Written by this sink or by the transport: an event or an option must not forge them, also not under a name that is
 * the same variable. */
bool is_reserved(std::string_view name);

/* What CGI and its heirs (WSGI, PHP, Rack) make one variable of: "webhook_id" would be read as webhook-id is. */
bool same_variable(std::string_view one, std::string_view other);
bool has_same_variable(const HttpHeaders &headers, std::string_view name);

/* By its name, in any case; null when there is none. */
const std::string *find_header(const HttpHeaders &headers, std::string_view name);

/* Names of headers know no case. */
bool same_name(std::string_view one, std::string_view other);

/* A field as libcurl takes it, from a program and on its command line: 'name:' would leave it out. */
std::string header_line(const std::string &name, const std::string &value);

}  // namespace outbox
