/*
 * signer.h: signs requests with the sink's credentials, by the clock of AWS. Where the credentials come from the
 * chain, a thread of its own fetches and renews them; until the first ones are there, nothing can be signed.
 */
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "aws_config.h"
#include "delivery/http/http_sender.h"
#include "delivery/identity/renewed.h"
#include "request.h"

namespace outbox::aws_sink {

/* The headers of a request, its signature included. `now`: Unix time, in seconds. */
aws::Headers signed_headers(const Target &target, const Content &content, const aws::Credentials &credentials,
                            int64_t now);

/* By how many seconds AWS's clock is ahead of this machine's; `date`: the header of an answer. Nothing if it is none.
 */
std::optional<int64_t> clock_ahead(const std::string &date);
std::string clock_text(int64_t ahead);

/* The text without the secrets of the user mapping, and those of these credentials; `cut` as in SecretMask. */
std::string masked(const AwsConfig &config, const aws::Credentials &credentials, std::string_view text, bool cut);

/* All functions: any thread. */
class Signer {
public:
  /* Throws std::system_error if no thread can be started. */
  Signer(std::shared_ptr<const AwsConfig> config, std::shared_ptr<Reporter> reporter);

  /* Once there are credentials, the last ones are used until there are newer ones: AWS says when they have expired.
   */
  HttpGrant grant() const;
  /* Needs a grant. */
  aws::Headers sign(const Content &content) const;

  /* AWS repeats some of what it was sent. */
  std::string without_secrets(std::string_view text, bool cut) const;

  using Time = std::chrono::steady_clock::time_point;
  /* AWS takes the credentials of a request that began then for expired. Returns why there are no newer ones, empty if
   * that is unknown, or if there are some since the request began. */
  std::string expired(Time began);
  /* AWS takes the time of a signature for wrong; `date`: the header of its answer. Returns what is wrong with the
   * clock, empty if that is unknown. */
  std::string correct_clock(const std::string &date);

private:
  using Credentials = std::shared_ptr<const aws::Credentials>;
  Credentials current() const;
  Grant<aws::Credentials> fetch(const Stop &stop);
  void fetched();

  const std::shared_ptr<const AwsConfig> config_;
  const std::shared_ptr<Reporter> reporter_;
  std::atomic<int64_t> ahead_{0}; /* AWS's clock, in seconds before this machine's */
  mutable std::mutex mutex_;      /* guards the next two */
  mutable Credentials last_;
  mutable Time last_since_{};
  bool granted_ = false, down_ = false;              /* of the thread that fetches */
  std::unique_ptr<Renewed<aws::Credentials>> chain_; /* last: its thread uses the members above */
};

}  // namespace outbox::aws_sink
