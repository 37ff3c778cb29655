/* console.h: what is answered to a request: who asks, may they, and which page it is. */
#pragma once

#include <mutex>

#include "console/access/sessions.h"
#include "console/access/throttle.h"
#include "console/options.h"
#include "console/server/message.h"

namespace console {

class Console {
public:
  static constexpr size_t most_sessions = 20;
  static constexpr int most_logins = 4; /* at a time: each of them makes the server work */

  explicit Console(const Options &options)
      : options_(options), sessions_(most_sessions, std::chrono::seconds(options.idle_seconds)) {}

  /* Any thread; throws nothing. */
  Response answer(const Request &request);
  /* Once a second. */
  void tick();
  /* The path of a link that logs one browser in as the caller; the link before it is void. */
  std::string new_link();

private:
  Response route(const Request &request);
  Response post(const Request &request);
  Response page(const Request &request, Session &session);
  Response log_in(const Request &request);
  Response log_in_by_link(const Request &request);
  std::shared_ptr<Session> open_session(const Login &login, bool may_be_superuser);
  Response welcome(const Request &request, const Session &session) const;
  std::shared_ptr<Session> session_of(const Request &request);
  std::shared_ptr<Session> session_of_header(const Request &request);
  bool is_for_us(const Request &request) const;
  bool comes_from_own_page(const Request &request) const;
  Response login_page(unsigned status, std::string_view error) const;
  std::string cookie_name(const Request &request) const;

  const Options &options_;
  Sessions sessions_;
  std::mutex lock_;   /* of all that follows */
  int logins_ = 0;    /* that are under way */
  std::string token_; /* of the link; empty: used */
  Throttle of_address_{std::chrono::seconds(60)}, of_role_{std::chrono::seconds(5)};
  std::map<std::string, std::string> by_header_; /* the session of a role that the proxy names */
};

}  // namespace console
