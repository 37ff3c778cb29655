/*
 * sessions.h: who is logged in. A session has a connection of its own, so that rights, row security and audit are
 * PostgreSQL's. Its name is a secret that the browser keeps in a cookie; nothing else leads to it.
 */
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "console/access/throttle.h"
#include "console/database/connection.h"
#include "console/html/html.h"

namespace console {

/* What a sink had at a time: for the small curves. */
struct Sample {
  std::chrono::steady_clock::time_point at;
  double delivered, pending;
};

/* What the doctor found, which is asked less often than a page is shown. */
struct Findings {
  std::chrono::steady_clock::time_point at{};
  std::string when;  /* the server's time */
  std::string about; /* what the page knew then: if that has changed, they are asked again */
  struct Row {
    std::string check, status, detail, hint;
  };
  std::vector<Row> rows;
};

/* Buttons that the role may press. */
struct Rights {
  std::chrono::steady_clock::time_point at{};
  bool pause = false, resume = false, redrive = false, discard = false, replay = false, probe = false, story = false,
       preview = false, payload = false;
};

struct Session {
  const std::string name, form_token;
  std::mutex lock; /* of all that follows: one request at a time */
  std::unique_ptr<Connection> connection;
  std::string role, database, server;
  bool is_read_only = false;
  std::string told; /* once, on the next page: what an action has done */
  bool told_is_error = false;
  Rights rights;
  Findings findings;
  std::map<std::string, std::deque<Sample>, std::less<>> curves; /* by sink */

  Session(std::string name_, std::string form_token_) : name(std::move(name_)), form_token(std::move(form_token_)) {}
};

class Sessions {
public:
  using Clock = std::chrono::steady_clock;

  Sessions(size_t most, std::chrono::seconds idle_limit) : most_(most), idle_limit_(idle_limit) {}

  /* Null if there are as many already. */
  std::shared_ptr<Session> add();
  /* Null if there is none, or it has ended. */
  std::shared_ptr<Session> find(std::string_view name);
  void end(std::string_view name);
  /* Ends those that nobody has used for a while. */
  void end_idle(Clock::time_point now);

private:
  struct Kept {
    std::shared_ptr<Session> session;
    Clock::time_point used;
  };
  const size_t most_;
  const std::chrono::seconds idle_limit_;
  std::mutex lock_;
  std::map<std::string, Kept, std::less<>> by_name_;
};

}  // namespace console
