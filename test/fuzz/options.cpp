/* options.cpp: whole lists of options of each kind of sink, as CREATE SERVER and CREATE USER MAPPING give them. What
 * is accepted for one purpose is so for the next, and no error holds a secret. */
#include "test/fuzz/fuzz.h"

#include <deque>
#include <map>

#include "test/unit/border.h"

namespace {

constexpr std::string_view marker = "s3cr3t";

struct List {
  std::map<std::string, std::string> texts; /* as PostgreSQL has it: each name once */
  std::vector<ob_option> options;
  bool only_secrets = true; /* of all that has the marker */

  void read(fuzz::Input &input) {
    for (;;) {
      std::string line = fuzz::without_nul(input.line());
      if (line.empty())
        break;
      size_t equals = std::min(line.find('='), line.size());
      std::string value = line.substr(std::min(equals + 1, line.size())), name = line.substr(0, equals);
      for (size_t at = 0; (at = value.find("\\n", at)) != value.npos; at++)
        value.replace(at, 2, "\n");
      if (line.find(marker) != line.npos)
        only_secrets &= name.find(marker) == name.npos && is_secret(name);
      texts[name] = value;
    }
    for (const auto &[name, value] : texts)
      options.push_back({name.c_str(), value.c_str()});
  }

  static bool is_secret(std::string_view name) {
    for (std::string_view known :
         {"secret", "token", "user", "password", "proxy_password", "ssl_key_pem", "sasl_password", "url"})
      if (name == known)
        return true;
    return false;
  }
};

void check_error(const ob_error &error, bool good, bool only_secrets) {
  HOLDS(good == (error.kind == OB_OK) && good == (error.message[0] == '\0'));
  HOLDS(error.kind != OB_INTERNAL);
  if (only_secrets)
    for (std::string_view said : {std::string_view(error.subject), std::string_view(error.message),
                                  std::string_view(error.detail), std::string_view(error.hint)})
      HOLDS(said.find(marker) == said.npos);
}

}  // namespace

void fuzz::one_input(std::string_view data) {
  Input input(data.substr(0, 16'384)); /* longer ones only hold more options, each of which costs some 10 µs */
  constexpr const char *kinds[] = {"webhook", "kafka", "manual"};
  const char *kind = kinds[input.digit() % 3];
  input.line();
  List server, mapping;
  server.read(input);
  mapping.read(input);
  bool only_secrets = server.only_secrets && mapping.only_secrets;
  ob_error error{};
  auto said = [&](bool good) {
    check_error(error, good, only_secrets);
    return good;
  };

  bool good = said(border::check_options(kind, OB_SERVER, server.options, true, &error));
  if (!said(border::check_options(kind, OB_SERVER, server.options, false, &error)))
    HOLDS(!good || error.kind == OB_FORBIDDEN);
  else
    HOLDS(good);
  bool good_mapping = said(border::check_options(kind, OB_USER_MAPPING, mapping.options, true, &error));
  ob_common common{};
  bool has_common = said(border::common_options(kind, server.options, &common, &error));
  if (good) {
    HOLDS(has_common && common.max_attempts >= 0 && common.retention_ms >= -1 && common.disable_after_ms >= 0);
    HOLDS(!common.retry || ob_check_retry(common.retry, &error));
  }
  ob_checker *checker = border::checker_open(kind, server.options, nullptr, &error);
  HOLDS(said(checker != nullptr) == good);
  if (checker) {
    (void)checker->max_payload;
    ob_release(checker);
  }
  checker = border::checker_open(kind, server.options, &mapping.options, &error);
  HOLDS(!said(checker != nullptr) || good_mapping);
  if (checker)
    ob_release(checker);
  (void)said(border::check_owner(kind, server.options, mapping.options, &error));
}
