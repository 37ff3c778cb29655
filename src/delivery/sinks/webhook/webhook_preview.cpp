/* webhook_preview.cpp: the request that is sent of an event, to be looked at: part by part, and as a command. */
#include <algorithm>

#include "delivery/http/shell_command.h"
#include "delivery/http/url_parts.h"
#include "delivery/sinks/webhook/webhook_config.h"

namespace outbox {
namespace {

PreviewPart bytes_part(const char *part, std::string name, std::string bytes) {
  return {part, std::move(name), std::move(bytes), {}};
}

PreviewPart text_part(const char *part, std::string name, std::string text) {
  return {part, std::move(name), {}, std::move(text)};
}

/* Host, as libcurl writes it. */
std::string host_of(const std::string &url) {
  UrlParts parts(url);
  std::string host = parts.host();
  std::string port = parts.get(CURLUPART_PORT, CURLU_NO_DEFAULT_PORT);
  return port.empty() ? host : host + ':' + port;
}

/* OUTBOX_X_API_KEY */
std::string variable_for(std::string_view header) {
  std::string name = "OUTBOX_";
  for (char c : header) {
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    name += letter && c >= 'a' ? static_cast<char>(c - 'a' + 'A') : letter || (c >= '0' && c <= '9') ? c : '_';
  }
  return name;
}

/* An argument of a command may have 128 kB, and nobody reads so much. */
constexpr size_t largest_argument = 32 * 1024;

class RequestPreview {
public:
  RequestPreview(const WebhookConfig &config, const ob_event &event, int64_t now)
      : config_(config), request_(config.render(event)), now_(now) {}

  Preview parts() {
    Preview parts;
    bool secret_url = config_.url.empty() || config_.url_is_secret;
    const std::string &url = request_.url.empty() ? config_.url : request_.url;

    parts.push_back(bytes_part("method", {}, config_.method));
    parts.push_back(secret_url ? text_part("url", {}, "(in the user mapping)") : bytes_part("url", {}, url));
    parts.push_back(secret_url ? text_part("header", "Host", "(of the url)")
                               : bytes_part("header", "Host", host_of(url)));
    if (!find_header(request_.headers, "Accept") && !find_header(config_.auth.headers, "Accept"))
      parts.push_back(bytes_part("header", "Accept", "*/*"));
    for (auto &[name, value] : request_.headers)
      parts.push_back(bytes_part("header", name, value));
    put_attempt(parts);
    parts.push_back(bytes_part("header", "Content-Length", std::to_string(request_.body.size())));
    std::string command = curl(secret_url, url);
    parts.push_back(text_part("body", {}, {}));
    if (request_.has_content)
      parts.back().bytes = std::move(request_.body);
    parts.push_back(text_part("curl", {}, std::move(command)));
    return parts;
  }

private:
  /* As attempt_headers() has them: a signature is none of the secrets, and changes with each attempt. */
  void put_attempt(Preview &parts) const {
    if (!config_.knows_mapping) {
      parts.push_back(
          text_part("header", "Authorization", "(Bearer *** or Basic ***, when the user mapping has them)"));
      parts.push_back(text_part("header", config_.timestamp_header, "(the time of each attempt, in Unix seconds)"));
      parts.push_back(text_part("header", config_.signature_header,
                                "(v1,*** of each attempt, when the user mapping has a secret)"));
      return;
    }
    for (auto &[name, value] : config_.attempt_headers(request_, now_))
      if (is_secret(name))
        parts.push_back(text_part("header", name, "(" + std::string(scheme_of(name, value)) + "***)"));
      else
        parts.push_back(bytes_part("header", name, value));
  }

  bool is_secret(const std::string &name) const { return find_header(config_.auth.headers, name) != nullptr; }

  /* "Bearer " or "Basic ", which is no secret. */
  static std::string_view scheme_of(const std::string &name, const std::string &value) {
    if (same_name(name, "authorization"))
      for (std::string_view scheme : {"Bearer ", "Basic "})
        if (value.starts_with(scheme))
          return scheme;
    return {};
  }

  /* What a ~/.curlrc or the environment's proxies would change is turned off, as the sink does not have it. */
  std::string curl(bool secret_url, const std::string &url) const {
    ShellCommand command("curl");
    command.option("--disable").option("--include").option("--globoff").option("--http1.1");
    command.option("--max-time", std::to_string((config_.timeout.count() + 999) / 1000));
    if (config_.proxy.is_used())
      command.option("--proxy", config_.proxy.url).option("--noproxy", "");
    else
      command.option("--noproxy", "*");
    if (!config_.proxy.username.empty())
      command.option_of_variable("--proxy-user", {}, "OUTBOX_PROXY_USER",
                                 "proxy_username:proxy_password of the user mapping");
    if (config_.is_https())
      command.option("--tlsv1.2");
    if (!config_.ca_pem.empty())
      command.option_of_variable("--cacert", {}, "OUTBOX_CA_FILE", "a file with ca_pem of the server");
    if (!config_.auth.certificate_pem.empty())
      command
          .option_of_variable("--cert", {}, "OUTBOX_CERTIFICATE_FILE",
                              "a file with ssl_certificate_pem of the user mapping")
          .option_of_variable("--key", {}, "OUTBOX_KEY_FILE", "a file with ssl_key_pem of the user mapping");
    if (!config_.auth.key_password.empty())
      command.option_of_variable("--pass", {}, "OUTBOX_KEY_PASSWORD", "ssl_key_password of the user mapping");
    command.option("--request", config_.method);
    if (secret_url)
      command.option_of_variable("--url", {}, "OUTBOX_URL", "the url in the user mapping");
    else
      command.option("--url", url);
    put_headers(command);
    if (request_.body.size() <= largest_argument && is_printable(request_.body)) {
      command.option("--data-raw", request_.body); /* unlike the others it has no meaning for a leading @ */
    } else {
      command.option("--data-binary", "@-");
      command.input(request_.body);
    }
    return command.text();
  }

  void put_headers(ShellCommand &command) const {
    command.option("--header", "Expect:"); /* no pause before a large body */
    if (!request_.has_content)
      command.option("--header", "Content-Type:"); /* else curl names one of its own */
    for (auto &[name, value] : request_.headers)
      command.option("--header", header_line(name, value));
    if (!config_.knows_mapping)
      return;
    for (auto &[name, value] : config_.attempt_headers(request_, now_))
      if (!is_secret(name))
        command.option("--header", header_line(name, value));
      else if (scheme_of(name, value) == "Bearer ")
        command.option_of_variable("--header", name + ": Bearer ", "OUTBOX_BEARER_TOKEN",
                                   "bearer_token of the user mapping");
      else if (scheme_of(name, value) == "Basic ")
        command.option_of_variable("--user", {}, "OUTBOX_USER", "username:password of the user mapping");
      else
        command.option_of_variable("--header", name + ": ", variable_for(name), "header of the user mapping");
  }

  const WebhookConfig &config_;
  WebhookRequest request_;
  const int64_t now_;
};

}  // namespace

Preview WebhookConfig::preview(const ob_event &event, int64_t now) const {
  return RequestPreview(*this, event, now).parts();
}

}  // namespace outbox
