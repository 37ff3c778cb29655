/* signer.cpp: AWS refuses a signature that is older than five minutes, or as much younger. */
#include "signer.h"

#include <curl/curl.h>

#include <cstdlib>
#include <ctime>
#include <utility>

namespace outbox::aws_sink {

aws::Headers signed_headers(const Target &target, const Content &content, const aws::Credentials &credentials,
                            int64_t now) {
  aws::Request request;
  request.host = target.host;
  request.headers = content.headers;
  request.body = content.body;
  aws::Headers headers = content.headers;
  for (auto &header : aws::sign(request, {target.region, target.words().signing_name}, credentials, now))
    headers.push_back(std::move(header));
  return headers;
}

std::optional<int64_t> clock_ahead(const std::string &date) {
  const time_t there = curl_getdate(date.c_str(), nullptr);
  return there < 0 ? std::nullopt : std::optional<int64_t>(there - time(nullptr));
}

std::string clock_text(int64_t ahead) {
  return "the clock of the database server is " + std::to_string(std::abs(ahead)) + " s " +
         (ahead < 0 ? "ahead of" : "behind") + " that of AWS";
}

std::string masked(const AwsConfig &config, const aws::Credentials &credentials, std::string_view text, bool cut) {
  SecretMask mask = config.secrets;
  mask.add(credentials.secret_access_key);
  if (!credentials.session_token.empty())
    mask.add(credentials.session_token);
  return mask.masked(text, cut);
}

Signer::Signer(std::shared_ptr<const AwsConfig> config, std::shared_ptr<Reporter> reporter)
    : config_(std::move(config)), reporter_(std::move(reporter)) {
  if (!config_->credential_options.chain.empty())
    chain_ = std::make_unique<Renewed<aws::Credentials>>([this](const Stop &stop) { return fetch(stop); },
                                                         [this] { fetched(); });
  else
    last_ = std::make_shared<const aws::Credentials>(config_->credentials->fetch([] { return false; }).value);
}

// ---- the thread that fetches; chain_ may not be set yet ----

/* While there are former credentials, a failure is no outage. */
Grant<aws::Credentials> Signer::fetch(const Stop &stop) {
  granted_ = false;
  try {
    Grant<aws::Credentials> grant = config_->credentials->fetch(stop);
    granted_ = true;
    return grant;
  } catch (const std::exception &failure) {
    std::lock_guard lock(mutex_);
    if (!last_ && !stop()) {
      down_ = true;
      reporter_->down(failure.what(), OB_REASON_AUTH);
    }
    throw;
  }
}

void Signer::fetched() {
  if (granted_ && std::exchange(down_, false))
    reporter_->up();
  reporter_->wake();
}

// ---- any thread ----

Signer::Credentials Signer::current() const {
  std::lock_guard lock(mutex_);
  if (chain_)
    if (Credentials now = chain_->now().value; now && now != last_) {
      last_ = std::move(now);
      last_since_ = std::chrono::steady_clock::now();
    }
  return last_;
}

HttpGrant Signer::grant() const {
  Credentials credentials = current();
  if (!credentials)
    return {.error = chain_->now().error};
  return {.secret = {credentials, &credentials->secret_access_key}};
}

aws::Headers Signer::sign(const Content &content) const {
  return signed_headers(config_->target, content, *current(), time(nullptr) + ahead_);
}

std::string Signer::without_secrets(std::string_view text, bool cut) const {
  return masked(*config_, *current(), text, cut);
}

std::string Signer::expired(Time began) {
  if (!chain_)
    return {};
  (void)current();
  {
    std::lock_guard lock(mutex_);
    if (began < last_since_)
      return {}; /* another request had said so before, and there are newer ones */
  }
  auto now = chain_->now();
  chain_->refused(now.value);
  return now.error;
}

std::string Signer::correct_clock(const std::string &date) {
  constexpr int64_t noise = 60;
  const std::optional<int64_t> ahead = clock_ahead(date);
  if (!ahead)
    return {};
  if (std::abs(*ahead - ahead_.exchange(*ahead)) > noise)
    reporter_->log(OB_LOG_WARNING, clock_text(*ahead) + ": requests are signed by the clock of AWS from now on");
  return clock_text(*ahead);
}

}  // namespace outbox::aws_sink
