/* connection.cpp: libpq. */
#include "connection.h"

#include <libpq-fe.h>
#include <poll.h>

#include <array>
#include <charconv>
#include <vector>

namespace console {

using Clock = std::chrono::steady_clock;

Rows::Rows(pg_result *result) : result_(result, PQclear) {}
Rows::Rows(Rows &&) noexcept = default;
Rows &Rows::operator=(Rows &&) noexcept = default;
Rows::~Rows() = default;

int Rows::size() const {
  return PQntuples(result_.get());
}
int Rows::columns() const {
  return PQnfields(result_.get());
}
std::string_view Rows::name(int column) const {
  return PQfname(result_.get(), column);
}

int Rows::number(std::string_view column) const {
  for (int i = 0; i < columns(); i++)
    if (name(i) == column)
      return i;
  throw std::logic_error("no column " + std::string(column));
}

std::string_view Rows::at(int row, int column) const {
  return {PQgetvalue(result_.get(), row, column), static_cast<size_t>(PQgetlength(result_.get(), row, column))};
}

std::string_view Rows::at(int row, std::string_view column) const {
  return at(row, number(column));
}
double Rows::value(int row, std::string_view column) const {
  double value = 0;
  const std::string_view text = at(row, column);
  std::from_chars(text.begin(), text.end(), value);
  return value;
}
bool Rows::is_null(int row, int column) const {
  return PQgetisnull(result_.get(), row, column) != 0;
}
bool Rows::is_null(int row, std::string_view column) const {
  return is_null(row, number(column));
}

static std::string trimmed(const char *text) {
  std::string found = text ? text : "";
  while (!found.empty() && found.back() == '\n')
    found.pop_back();
  return found;
}

/* libpq reads conninfo, with PGHOST and the like, ~/.pgpass and services; what follows takes precedence. */
static PGconn *open(const Login &login) {
  /* No function of another schema may take the place of PostgreSQL's; and the first rows of an index are found
   * without statistics, which are old where rows come and go fast. */
  std::string options =
      "-c search_path=pg_catalog,pg_temp -c DateStyle=ISO -c lock_timeout=100ms"
      " -c idle_in_transaction_session_timeout=10s -c client_min_messages=notice -c jit=off"
      " -c enable_seqscan=off -c enable_bitmapscan=off -c enable_sort=off -c max_parallel_workers_per_gather=0";
  if (login.is_read_only)
    options += " -c default_transaction_read_only=on";
  std::vector<const char *> names{"dbname", "options", "fallback_application_name", "client_encoding"};
  std::vector<const char *> values{login.conninfo.c_str(), options.c_str(), "outbox-console", "UTF8"};
  const auto add = [&](const char *name, const std::string &value) {
    names.push_back(name);
    values.push_back(value.c_str());
  };
  /* A server that is gone without a word is noticed in seconds. */
  const std::string seconds = "5", count = "3", milliseconds = "15000";
  add("connect_timeout", seconds);
  add("keepalives_idle", seconds);
  add("keepalives_interval", seconds);
  add("keepalives_count", count);
  add("tcp_user_timeout", milliseconds);
  if (!login.user.empty()) {
    add("user", login.user);
    add("password", login.password);
  }
  names.push_back(nullptr);
  values.push_back(nullptr);
  return PQconnectdbParams(names.data(), values.data(), 1);
}

Connection::Connection(const Login &login) : connection_(open(login), PQfinish), role_(login.role) {
  if (PQstatus(connection_.get()) != CONNECTION_OK)
    fail(nullptr);
  PQsetNoticeReceiver(
      connection_.get(),
      [](void *self, const PGresult *notice) {
        const auto field = [&](int code) {
          const char *text = PQresultErrorField(notice, code);
          return std::string(text ? text : "");
        };
        static_cast<Connection *>(self)->notices_.push_back(
            {field(PG_DIAG_MESSAGE_PRIMARY), field(PG_DIAG_MESSAGE_DETAIL), field(PG_DIAG_MESSAGE_HINT)});
      },
      this);
  if (login.needs_password() && !PQconnectionUsedPassword(connection_.get()))
    throw DatabaseError("the server has let " + login.user + " in without the password", "28P01", "");
  set_up();
}

Connection::~Connection() = default;

void Connection::set_up() {
  limit_ = Duration{0};
  if (!role_.empty()) {
    send(text(Sql("SELECT pg_catalog.set_config('role', {}, false)", role_)));
    if (send("SELECT current_user").at(0, 0) != role_)
      throw DatabaseError("the role " + role_ + " was not taken", "42501", "");
  }
  is_set_up_ = true;
}

/* The message is the server's, with its detail, and without the statement, which the page shows. */
void Connection::fail(const pg_result *result) const {
  const auto field = [&](int code) {
    const char *value = result ? PQresultErrorField(result, code) : nullptr;
    return std::string(value ? value : "");
  };
  std::string message = field(PG_DIAG_MESSAGE_PRIMARY);
  if (const std::string detail = field(PG_DIAG_MESSAGE_DETAIL); !detail.empty())
    message += ": " + detail;
  if (message.empty())
    message = trimmed(PQerrorMessage(connection_.get()));
  const bool is_lost = PQstatus(connection_.get()) != CONNECTION_OK;
  throw DatabaseError(message, is_lost ? std::string() : field(PG_DIAG_SQLSTATE), field(PG_DIAG_MESSAGE_HINT));
}

std::string Connection::text(const Sql &statement) const {
  std::string made;
  std::string_view rest = statement.text();
  for (const std::string &value : statement.values()) {
    const std::unique_ptr<char, void (*)(void *)> quoted(
        PQescapeLiteral(connection_.get(), value.data(), value.size()), PQfreemem);
    if (!quoted)
      throw DatabaseError("the text is not valid UTF-8", "22021", "");
    const size_t at = rest.find("{}");
    made += rest.substr(0, at);
    made += quoted.get();
    rest.remove_prefix(at + 2);
  }
  return made += rest;
}

void Connection::connect_again() {
  constexpr std::chrono::seconds pause{
      1}; /* pages come every two seconds, and every connection costs the server one */
  if (Clock::now() < try_again_)
    fail(nullptr);
  try_again_ = Clock::now() + pause;
  is_set_up_ = false;
  PQreset(connection_.get());
  if (PQstatus(connection_.get()) != CONNECTION_OK)
    fail(nullptr);
  set_up();
}

Rows Connection::checked(pg_result *result) {
  Rows rows(result);
  if (const ExecStatusType status = PQresultStatus(result); status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
    fail(result);
  return rows;
}

/* One statement, without parameters: the extended protocol refuses a second one in the text. */
Rows Connection::send(const std::string &statement) {
  return checked(PQexecParams(connection_.get(), statement.c_str(), 0, nullptr, nullptr, nullptr, nullptr, 0));
}

void Connection::set_limit(Duration limit) {
  if (limit == limit_)
    return;
  send(text(
      Sql("SELECT pg_catalog.set_config('statement_timeout', {}, false)", std::to_string(limit.count()) + "ms")));
  limit_ = limit;
}

std::string Connection::prepare(const Sql &statement, Duration limit) {
  notices_.clear();
  PQconsumeInput(connection_.get()); /* sees that the server has ended an idle connection */
  if (PQstatus(connection_.get()) != CONNECTION_OK || !is_set_up_)
    connect_again();
  std::string sent = text(statement);
  set_limit(limit);
  return sent;
}

Rows Connection::run(const Sql &statement, Duration limit) {
  return send(prepare(statement, limit));
}

std::string Connection::notices() const {
  std::string all;
  for (const Notice &notice : notices_)
    all += (all.empty() ? "" : " ") + notice.message;
  return all;
}

void Connection::begin(const Sql &statement, Duration limit) {
  const std::string sent = prepare(statement, limit);
  send("SELECT pg_catalog.set_config('client_min_messages', 'debug1', false)");
  if (PQsendQueryParams(connection_.get(), sent.c_str(), 0, nullptr, nullptr, nullptr, nullptr, 0) != 1)
    fail(nullptr);
}

std::optional<Rows> Connection::wait(Duration at_most) {
  const Clock::time_point until = Clock::now() + at_most;
  for (;;) {
    if (PQconsumeInput(connection_.get()) != 1)
      fail(nullptr);
    if (!PQisBusy(connection_.get()))
      return checked(PQgetResult(connection_.get()));
    const auto left = std::chrono::duration_cast<Duration>(until - Clock::now());
    if (!notices_.empty() || left.count() <= 0)
      return {};
    pollfd waits{PQsocket(connection_.get()), POLLIN, 0};
    poll(&waits, 1, static_cast<int>(left.count()));
  }
}

void Connection::finish() noexcept {
  if (PQtransactionStatus(connection_.get()) == PQTRANS_ACTIVE) {
    char error[256];
    const std::unique_ptr<PGcancel, void (*)(PGcancel *)> cancel(PQgetCancel(connection_.get()), PQfreeCancel);
    if (cancel)
      PQcancel(cancel.get(), error, sizeof(error));
  }
  while (PGresult *result = PQgetResult(connection_.get()))
    PQclear(result);
  PQclear(PQexec(connection_.get(), "SELECT pg_catalog.set_config('client_min_messages', 'notice', false)"));
  notices_.clear();
}

}  // namespace console
