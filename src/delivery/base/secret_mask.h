/*
 * secret_mask.h: masks credentials in a text in which a peer may have repeated them, in any nesting of JSON
 * escapes, percent-encoding, HTML entities and base64. No shared state: safe on any thread.
 */
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace outbox {

class SecretMask {
public:
  /* A secret of fewer than `shortest` bytes is not masked, because it would match in every text. The first half of a
   * long one is masked too: some peers cut what they repeat, and go on. */
  void add(std::string_view secret, size_t shortest = 4);
  /* A URL that contains a token: masks the whole URL, its host, the part after its host, and each longer part of both
   * but the domain's last two labels. */
  void add_url(std::string_view url);
  /* The value of a header: masks the whole value and its parts ("Token ..."); Basic credentials are decoded first. */
  void add_header(std::string_view value);
  /* User and password of Basic authentication. Without a password the user's name is the secret. */
  void add_basic(const std::string &user, const std::string &password);

  /* Returns the text with *** in place of each secret. `cut`: the text was truncated, so the beginning of a secret at
   * its end is masked too. */
  std::string masked(std::string_view text, bool cut = false) const;

private:
  /* Decoded like the text in which it is searched. `telling`: how many bytes of its beginning are masked wherever
   * they stand. */
  struct Needle {
    std::string bytes;
    size_t telling;
  };

  enum class Telling { Whole, FirstHalf };

  void add_whole(std::string_view secret, size_t shortest = 4) { add_forms(secret, shortest, Telling::Whole); }
  void add_forms(std::string_view secret, size_t shortest, Telling telling);
  void add_part_of_url(std::string_view part, size_t shortest);
  void add_host(std::string_view host);
  void add_needle(std::string_view needle, Telling telling);

  std::vector<Needle> needles_;
};

}  // namespace outbox
