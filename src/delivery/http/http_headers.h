/* http_headers.h: header fields: which are legal in HTTP, and which a sink leaves to its user. */
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace outbox {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

/* Throws BadInput if the header is not legal in HTTP. */
void check_http_header(std::string_view name, std::string_view value);

/* Parses the headers of an option: a flat JSON object. Accepts Authorization and Content-Type: the caller knows
 * whether they are allowed. Throws BadInput. */
HttpHeaders parse_headers(const std::string &name, const std::string &value);

/* Of a header "Authorization: Bearer ...". Throws BadInput. */
void check_bearer_token(const std::string &name, const std::string &value);

bool is_header_name(std::string_view name);

/* Whether the value has a character that header values must not have. */
bool has_control(std::string_view value);

/* Headers that a webhook sink or the transport writes. Events and options must not forge them, also not under a name
 * that becomes the same CGI variable. */
bool is_reserved(std::string_view name);

/* For a header of a server's options, which everybody can read. Throws BadInput for one that by its name carries a
 * credential, unless its value consists of variables alone, which take it from the event. `what`: "Header". */
void refuse_credential(const std::string &option, const char *what, const std::string &name, std::string_view value);

/* Whether CGI and its successors (WSGI, PHP, Rack) make the same variable of both names: "webhook_id" equals
 * "webhook-id". */
bool same_variable(std::string_view one, std::string_view other);
bool has_same_variable(const HttpHeaders &headers, std::string_view name);

/* Finds a header by its name, case-insensitively; null if there is none. */
const std::string *find_header(const HttpHeaders &headers, std::string_view name);

/* Compares header names, which are case-insensitive. */
bool same_name(std::string_view one, std::string_view other);

/* A header line for libcurl, and for curl's command line: "name;" is an empty value, "name:" would omit the header.
 */
std::string header_line(const std::string &name, const std::string &value);

}  // namespace outbox
