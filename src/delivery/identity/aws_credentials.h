/*
 * aws_credentials.h: where a sink's AWS credentials come from: its user mapping, or the chain of places in which AWS
 * SDKs look. The chain is the identity of the database server's machine, so only superusers may let a sink use it.
 *
 * A sink that signs each request keeps a Renewed<aws::Credentials> (renewed.h) whose fetch is
 * CredentialSource::fetch().
 */
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "delivery/identity/aws_signature.h"
#include "delivery/identity/renewed.h"
#include "delivery/options/option_table.h"

namespace outbox::aws {

/* Environment variables by name. They are read once, on the main thread: another thread could read while they change.
 */
using Environment = std::map<std::string, std::string, std::less<>>;

/* Immutable: any thread. */
class CredentialSource {
public:
  explicit CredentialSource(Credentials given) : given_(std::move(given)) {}
  /* The chain: environment variables, web identity (a token in a file, exchanged at STS), container metadata,
   * instance metadata. The first place that the environment names is used; an error there does not lead to the next.
   */
  static CredentialSource chain(); /* of this process's environment */
  static CredentialSource chain(Environment environment);

  /* Waits for STS or a metadata service, at most 10 s each. Throws NotGranted. */
  Grant<Credentials> fetch(const Stop &stop) const;
  /* "the user mapping", or "the chain": for a probe. */
  std::string_view name() const { return from_chain_ ? "the chain of AWS credentials" : "the user mapping"; }

private:
  CredentialSource() = default;

  Credentials given_;
  bool from_chain_ = false;
  Environment environment_;
};

inline constexpr OptionName AWS_REGION{"aws_region"}, AWS_CREDENTIALS{"aws_credentials"},
    AWS_ACCESS_KEY_ID{"aws_access_key_id"}, AWS_SECRET_ACCESS_KEY{"aws_secret_access_key"},
    AWS_SESSION_TOKEN{"aws_session_token"};

/* AWS_CREDENTIALS ('chain', superusers only) is an option of the server, the others are of the user mapping. */
/* An empty text: not given. */
struct CredentialOptions {
  std::string chain; /* of AWS_CREDENTIALS */
  Credentials keys;

  static std::vector<Row<CredentialOptions>> rows();
  /* Checks a user mapping's options together. Throws BadInput. */
  void check_mapping() const;
  /* Throws BadInput unless the options name exactly one source. Null if it would be in the user mapping, and that is
   * not known. */
  std::shared_ptr<const CredentialSource> source(bool knows_mapping) const;
};

}  // namespace outbox::aws
