/*
 * webhook_preview.cpp: shows the request of an event, part by part. The preview is signed only for users to whom
 * pg_user_mappings shows the secret: they could compute the signature themselves.
 */
#include "delivery/http/url_parts.h"
#include "webhook_config.h"

namespace outbox {
namespace {

PreviewPart bytes_part(const char *part, std::string name, std::string bytes) {
  return {part, std::move(name), std::move(bytes), {}};
}

PreviewPart text_part(const char *part, std::string name, std::string text) {
  return {part, std::move(name), {}, std::move(text)};
}

/* The Host header as libcurl writes it. */
std::string host_of(const std::string &url) {
  UrlParts parts(url);
  const std::string port = parts.unusual_port();
  return port.empty() ? parts.host : parts.host + ':' + port;
}

class RequestPreview {
public:
  RequestPreview(const WebhookConfig &config, const ob_event &event, int64_t now)
      : config_(config), request_(config.render(event)), now_(now) {
    if (config.batch)
      request_ = config.joined({request_});
  }

  Preview parts() {
    Preview parts;
    bool secret_url = config_.target.text().empty() || config_.url_is_secret;
    HttpMessage &request = request_;
    const std::string &url = request.url.empty() ? config_.target.text() : request.url;

    parts.push_back(bytes_part("method", {}, config_.method));
    parts.push_back(secret_url ? text_part("url", {}, "(in the user mapping)") : bytes_part("url", {}, url));
    parts.push_back(secret_url ? text_part("header", "Host", "(of the url)")
                               : bytes_part("header", "Host", host_of(url)));
    if (!find_header(request.headers, "Accept") && !find_header(config_.auth.headers, "Accept"))
      parts.push_back(bytes_part("header", "Accept", "*/*"));
    for (auto &[name, value] : request.headers)
      parts.push_back(bytes_part("header", name, value));
    put_attempt(parts);
    parts.push_back(bytes_part("header", "Content-Length", std::to_string(request.body.size())));
    parts.push_back(text_part("body", {}, {}));
    if (WebhookConfig::has_content(request))
      parts.back().bytes = std::move(request.body);
    return parts;
  }

private:
  /* The headers of attempt_headers(), with credentials masked. A signature is not secret: it differs with each
   * attempt. */
  void put_attempt(Preview &parts) const {
    if (!config_.knows_mapping) {
      parts.push_back(
          text_part("header", "Authorization", "(Bearer *** or Basic ***, when the user mapping has them)"));
      parts.push_back(text_part("header", TIMESTAMP_HEADER, "(the time of each attempt, in Unix seconds)"));
      parts.push_back(text_part("header", SIGNATURE_HEADER,
                                "(v1,*** or v1a,*** of each attempt, when the user mapping has a secret)"));
      return;
    }
    if (config_.oauth)
      parts.push_back(text_part("header", "Authorization", "(Bearer ***)"));
    for (auto &[name, value] : config_.attempt_headers(request_, nullptr, now_))
      if (is_secret(name))
        parts.push_back(text_part("header", name, "(" + std::string(scheme_of(name, value)) + "***)"));
      else
        parts.push_back(bytes_part("header", name, value));
  }

  bool is_secret(const std::string &name) const { return find_header(config_.auth.headers, name) != nullptr; }

  /* The prefix "Bearer " or "Basic ", which is not secret. */
  static std::string_view scheme_of(const std::string &name, const std::string &value) {
    if (same_name(name, "authorization"))
      for (std::string_view scheme : {"Bearer ", "Basic "})
        if (value.starts_with(scheme))
          return scheme;
    return {};
  }

  const WebhookConfig &config_;
  HttpMessage request_;
  const int64_t now_;
};

}  // namespace

Preview WebhookConfig::preview(const ob_event &event, int64_t now) const {
  return RequestPreview(*this, event, now).parts();
}

}  // namespace outbox
