/*
 * connection.h: one connection to PostgreSQL, by libpq. Every statement is bounded by the server: statement_timeout,
 * lock_timeout. What was lost is connected again by the next statement, with what libpq remembers of the login:
 * outbox's console keeps no password.
 */
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "console/database/statement.h"

struct pg_conn;
struct pg_result;

namespace console {

/* What the server, or libpq, has said. */
struct DatabaseError : std::runtime_error {
  DatabaseError(const std::string &text, std::string sqlstate_, std::string hint_)
      : std::runtime_error(text), sqlstate(std::move(sqlstate_)), hint(std::move(hint_)) {}
  std::string sqlstate; /* empty: the connection is lost, or there was none */
  std::string hint;
  bool is_lost() const { return sqlstate.empty(); }
};

/* What the server says while a statement runs. */
struct Notice {
  std::string message, detail, hint;
};

class Rows {
public:
  explicit Rows(pg_result *result);
  Rows(Rows &&) noexcept;
  Rows &operator=(Rows &&) noexcept;
  ~Rows();
  int size() const;
  bool empty() const { return size() == 0; }
  int columns() const;
  std::string_view name(int column) const;
  std::string_view at(int row, int column) const;
  /* A column that the statement does not have is an error of this program. */
  std::string_view at(int row, std::string_view column) const;
  double value(int row, std::string_view column) const; /* as a number; 0 if it is none */
  bool is_null(int row, int column) const;
  bool is_null(int row, std::string_view column) const;

private:
  int number(std::string_view column) const;
  std::unique_ptr<pg_result, void (*)(pg_result *)> result_;
};

/* Whom to log in as, and how. */
struct Login {
  std::string conninfo = {};            /* the program's own: libpq's rules for what is missing */
  std::string user = {}, password = {}; /* of a login form; empty: those of conninfo */
  std::string role = {};                /* SET ROLE after the login; empty: none */
  bool is_read_only = false;
  /* A form's login must be by its password: else it would borrow what the program itself may do. */
  bool needs_password() const { return !user.empty(); }
};

class Connection {
public:
  using Duration = std::chrono::milliseconds;
  static constexpr Duration page_limit{2000}, action_limit{60000};

  /* Throws DatabaseError. */
  explicit Connection(const Login &login);
  ~Connection();
  Connection(const Connection &) = delete;
  Connection &operator=(const Connection &) = delete;

  /* Throws DatabaseError. `limit` is the statement_timeout. */
  Rows run(const Sql &statement, Duration limit = page_limit);
  /* The text that run() sends. */
  std::string text(const Sql &statement) const;
  /* The notices and warnings of the last run(), as one text. */
  std::string notices() const;

  /* Begins a statement, of which the server tells all that it can (debug1); wait() goes on with it, and finish() ends
   * it in any case. */
  void begin(const Sql &statement, Duration limit);
  /* The rows, when it has ended; nothing yet after so long, or when the server has told something. */
  std::optional<Rows> wait(Duration at_most);
  std::vector<Notice> take_notices() { return std::exchange(notices_, {}); }
  void finish() noexcept;

private:
  void connect_again();
  void set_up(); /* the role, also after a reconnection: nothing runs without it */
  void set_limit(Duration limit);
  Rows send(const std::string &text);
  Rows checked(pg_result *result);
  std::string prepare(const Sql &statement, Duration limit);
  [[noreturn]] void fail(const pg_result *result) const;

  std::unique_ptr<pg_conn, void (*)(pg_conn *)> connection_;
  std::string role_;
  bool is_set_up_ = false;
  Duration limit_{0};
  std::vector<Notice> notices_;
  std::chrono::steady_clock::time_point try_again_{}; /* not before */
};

}  // namespace console
