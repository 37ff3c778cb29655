/*
 * webhook_url.cpp: scheme, host and port cannot depend on an event, and the values of variables are
 * percent-encoded: otherwise a user who may enqueue could choose the host that gets the sink's credentials. A path
 * segment '..' is refused, because servers and proxies resolve it. Checkers at enqueue time do not know the user
 * mapping; a URL in it is checked by the worker before it submits.
 */
#include "webhook_url.h"

#include <algorithm>

#include "delivery/base/text.h"
#include "delivery/http/url_parts.h"
#include "delivery/options/options.h"

namespace outbox {
namespace {

constexpr size_t max_url = 8000;  // servers accept about this much for the whole request line

bool is_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* Characters of a variable's value that are not percent-encoded. */
bool is_unreserved(char c) {
  return is_alphanumeric(c) || c == '-' || c == '.' || c == '_' || c == '~';
}

/* Characters that are legal in a path and a query; also brackets, which are common in queries. */
bool is_legal(char c) {
  return is_alphanumeric(c) || std::string_view("-._~:/?[]@!$&'()*+,;=%").find(c) != std::string_view::npos;
}

/* The URL with "x" in place of each variable. */
std::string sample(const std::string &option, std::string_view value) {
  std::string text;
  for (size_t at; (at = value.find("${")) != value.npos;) {
    size_t end = value.find('}', at);
    if (end == value.npos)
      refuse_value(option, "A variable does not end: there is no \"}\" after \"${\".",
                   "Write a variable as ${aggregate_id}, and a dollar sign before a brace as %24.");
    text.append(value.substr(0, at)) += 'x';
    value.remove_prefix(end + 1);
  }
  return text.append(value);
}

/* Checks scheme, host, port and everything else that libcurl parses. */
void check_parts(const std::string &option, const std::string &value) {
  constexpr const char *example = "Write it as https://example.com/hooks, or https://example.com:8443/hooks.";
  switch (origin_fault(value)) {
  case OriginFault::None:
    break;
  case OriginFault::Port:
    refuse_value(option, "A URL's port is a number from 1 to 65535.", example);
  case OriginFault::NoHost:
    refuse_value(option, "Expected an https URL such as https://example.com/hooks.", example);
  case OriginFault::User:
    refuse_value(option, "A URL must not carry a user name or a password.",
                 "Put them into the user mapping: CREATE USER MAPPING FOR PUBLIC SERVER ... OPTIONS (user '...', "
                 "password '...'), or (token '...').");
  case OriginFault::NotAscii:
    refuse_value(option, host_is_not_ascii, write_punycode);
  }
  if (value.find('#') != value.npos)
    refuse_value(option, "A URL's fragment (after #) is never sent.", "Leave it out, or write # as %23.");
}

void check_characters(const std::string &option, std::string_view text) {
  if (text.find_first_of("{}") != text.npos)
    refuse_value(option, "A URL has no braces, but around a variable.",
                 "Variables are written like ${aggregate_id}.");
  if (auto bad = std::find_if_not(text.begin(), text.end(), is_legal); bad != text.end()) {
    std::string encoded;
    append_percent_encoded(*bad, encoded);
    refuse_value(option, "Its path or query has a character that no URL has.",
                 "Percent-encode it: write " + encoded + " for the first such byte.");
  }
  if (!percent_encoding_ends(text))
    refuse_value(option, "A % in a URL is followed by two hexadecimal digits.",
                 "Write a per cent sign itself as %25.");
}

/* "." and "..", also percent-encoded: servers and proxies may remove segments because of them. */
bool is_dots(std::string_view segment) {
  size_t dots = 0;
  while (!segment.empty()) {
    size_t length = segment[0] == '.' ? 1 : segment.starts_with("%2e") || segment.starts_with("%2E") ? 3 : 0;
    if (length == 0)
      return false;
    segment.remove_prefix(length);
    dots++;
  }
  return dots == 1 || dots == 2;
}

bool has_dots(std::string_view path) {
  for (;;) {
    size_t end = path.find('/');
    if (is_dots(path.substr(0, end)))
      return true;
    if (end == path.npos)
      return false;
    path.remove_prefix(end + 1);
  }
}

/* The position of a character outside of variables. */
size_t find_outside(std::string_view text, char wanted) {
  for (size_t at = 0; at < text.size(); at++) {
    if (text.substr(at, 2) == "${")
      at = text.find('}', at);
    else if (text[at] == wanted)
      return at;
  }
  return text.size();
}

}  // namespace

WebhookUrl WebhookUrl::parse(const std::string &option, const std::string &value) {
  if (value.size() > max_url)
    refuse_value(option,
                 "It has " + std::to_string(value.size()) + " bytes; at most " + std::to_string(max_url) +
                     " are allowed.",
                 "Put what belongs to an event into the body.");
  std::string shown = sample(option, value);
  size_t scheme = value.find("://");
  size_t host = scheme == value.npos ? value.size() : scheme + 3;
  size_t end = std::min(value.find_first_of("/?#", host), value.size());
  if (value.find("${") < end)
    refuse_value(option, "Variables stand in the path and the query only, never in scheme, host or port.",
                 "Make a sink for each host, and choose its events by events, aggregates or match.");
  check_parts(option, shown);

  WebhookUrl url;
  url.text_ = value;
  url.origin_ = origin_of(value);
  url.host_ = UrlParts(url.origin_).host;
  url.https_ = (value[4] | 0x20) == 's';
  std::string_view rest = std::string_view(value).substr(url.origin_.size());
  check_characters(option, std::string_view(shown).substr(url.origin_.size()));
  size_t query = find_outside(rest, '?');
  url.path_ = Template::parse(option, rest.substr(0, query));
  url.query_ = Template::parse(option, rest.substr(query));
  url.has_variables_ = url.path_.has_variables() || url.query_.has_variables();
  if (has_dots(sample(option, rest.substr(0, query))))
    refuse_value(option, "Its path has a segment \".\" or \"..\".", "Write the path that is meant.");
  return url;
}

std::string WebhookUrl::render(const ob_event &event) const {
  std::string url = origin_, part;
  /* An empty value in a path counts as missing: DELETE /orders/ would affect all orders. */
  if (std::string missing = path_.missing(event, true); !missing.empty())
    throw_no_value(URL, missing);
  path_.render_encoded(event, is_unreserved, part);
  if (has_dots(part))
    throw BadInput(OB_BAD_VALUE, URL, "event would change the path of the sink's url",
                   "A value of " + path_.variables() + " makes a path segment \".\" or \"..\".",
                   "Change the event's value, or write other text beside the variable in option \"url\".");
  url += part;
  if (!query_.render_encoded(event, is_unreserved, part))
    throw_no_value(URL, query_.missing(event));
  url += part;
  if (UrlParts(url).host !=
      host_)  // checked again, although parse() ensures it: the sink's credentials go to this host
    throw BadInput(OB_BAD_VALUE, URL, "event would change the host of the sink's url",
                   "The host is for the owner of the sink alone to choose.",
                   "Change the event's values, or the option \"url\".");
  if (url.size() > max_url)
    throw BadInput(OB_BAD_VALUE, URL, "event makes the sink's url too long",
                   "It would have " + std::to_string(url.size()) + " bytes; at most " + std::to_string(max_url) +
                       " are allowed.",
                   "Put long texts into the payload.");
  return url;
}

}  // namespace outbox
