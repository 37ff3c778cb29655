/*
 * secret_mask.h: takes credentials out of a text in which a peer may have repeated them, in whatever encoding: JSON's
 * escapes, percent-encoding, HTML's entities, base64, and those within one another. Pure.
 */
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace outbox {

class SecretMask {
public:
  /* `shortest`: a shorter secret stays unmasked, because it would be found in every text. In bytes. */
  void add(std::string_view secret, size_t shortest = 4);
  /* A URL that holds a token: as a whole, what follows its host, and each longer part of that. */
  void add_url(std::string_view url);
  /* The value of a header: as a whole, and its parts ("Token ..."), those of Basic credentials decoded. */
  void add_header(std::string_view value);
  /* User and password of Basic authentication. Without a password the user's name is the secret. */
  void add_basic(const std::string &user, const std::string &password);

  /* The text with *** for each secret. `cut`: reading stopped at its end, where the beginning of a secret is masked
   * as well. */
  std::string masked(std::string_view text, bool cut = false) const;

private:
  void add_part_of_url(std::string_view part, size_t shortest);
  void add_needle(std::string_view needle);

  std::vector<std::string> needles_; /* decoded, as the text is before it is searched */
};

}  // namespace outbox
