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

/* The names of a kind's options: `credentials` ('chain', superusers only) of the server, the others of the user
 * mapping. A kind whose other options are not about AWS has names of its own ("aws_credentials"). */
struct CredentialNames {
  OptionName credentials{"credentials"}, access_key_id{"access_key_id"}, secret_access_key{"secret_access_key"},
      session_token{"session_token"};
};

/* An empty text: not given. */
struct CredentialOptions {
  std::string chain; /* of `credentials` */
  Credentials keys;

  static std::vector<Row<CredentialOptions>> rows(const CredentialNames &names = {});
  /* Checks a user mapping's options together. Throws BadInput. */
  void check_mapping(const CredentialNames &names = {}) const;
  /* Throws BadInput unless the options name exactly one source. Null if it would be in the user mapping, and that is
   * not known. */
  std::shared_ptr<const CredentialSource> source(bool knows_mapping, const CredentialNames &names = {}) const;
};

}  // namespace outbox::aws
