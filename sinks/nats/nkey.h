/*
 * nkey.h: logins by an nkey, NATS' name for a pair of Ed25519 keys: the server sends a nonce, the client signs it. A
 * .creds file holds such a key together with the JWT that says whose it is.
 */
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace outbox::nats {

/* The seed of a user, as `nk -gen user` and `nsc` write it: SU... */
class Nkey {
public:
  /* Throws BadInput about option `name`, without the seed, if it is none of a user. */
  static Nkey parse(const std::string &name, std::string_view seed);

  /* U...: may be shown. */
  std::string public_key() const;
  /* The signature as the server expects it: base64url. */
  std::string sign(std::string_view nonce) const;

private:
  std::array<unsigned char, 32> seed_{};
};

/* The parts of a .creds file, or an nkey alone. */
struct Credentials {
  std::string jwt; /* empty: an nkey alone */
  std::string seed;
  Nkey nkey; /* of the seed */
  /* Throws BadInput about option `name`, without the text. */
  static Credentials parse(const std::string &name, const std::string &text);
};

}  // namespace outbox::nats
