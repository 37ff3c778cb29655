/*
 * commit.cpp: transactions of one event each at an even rate, over a few connections (a divisor of the
 * 1,000 keys).
 *
 *   commit CONNINFO STATEMENT AGGREGATE_TYPE RATE SECONDS CONNECTIONS OUT
 *
 * STATEMENT inserts one event: $1 is its aggregate type, $2 its key, $3 its payload.
 * OUT gets a line for each event: the time just before its COMMIT was sent, and when the answer was there.
 */
#include <libpq-fe.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "events.h"
#include "pace.h"

namespace {

using namespace bench;

[[noreturn]] void die(const std::string &what) {
  fprintf(stderr, "commit: %s\n", what.c_str());
  _Exit(1); /* any thread, independent of the others */
}

class Connection {
public:
  Connection(const char *conninfo, const char *statement) : connection_(PQconnectdb(conninfo), PQfinish) {
    if (PQstatus(connection_.get()) != CONNECTION_OK)
      die(PQerrorMessage(connection_.get()));
    check(PQprepare(connection_.get(), "insert", statement, 3, nullptr));
  }

  void insert(const char *aggregate_type, const std::string &key, const std::string &payload) {
    check(PQexec(connection_.get(), "BEGIN"));
    const char *values[] = {aggregate_type, key.c_str(), payload.c_str()};
    check(PQexecPrepared(connection_.get(), "insert", 3, values, nullptr, nullptr, 0));
  }
  void commit() { check(PQexec(connection_.get(), "COMMIT")); }

private:
  void check(PGresult *result) {
    std::unique_ptr<PGresult, decltype(&PQclear)> owner(result, PQclear);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
      die(PQerrorMessage(connection_.get()));
  }
  std::unique_ptr<PGconn, decltype(&PQfinish)> connection_;
};

}  // namespace

int main(int argc, char **argv) {
  if (argc != 8)
    die("CONNINFO STATEMENT AGGREGATE_TYPE RATE SECONDS CONNECTIONS OUT");
  const char *aggregate_type = argv[3];
  double rate = atof(argv[4]);
  auto count = static_cast<long>(rate * atof(argv[5]));
  std::vector<std::unique_ptr<Connection>> connections;
  for (int i = 0; i < atoi(argv[6]); i++)
    connections.push_back(std::make_unique<Connection>(argv[1], argv[2]));

  std::vector<Times> times(static_cast<size_t>(count));
  std::atomic<int64_t> worst_lag_us{0};
  Events events(Events::Kind::fixed);
  Pace pace(rate);
  int64_t start = now_us();
  /* Each connection takes every n-th event: the events of a key come from one connection, one after the other. */
  auto work = [&](Connection &connection, size_t first) {
    for (auto n = static_cast<long>(first); n < count; n += static_cast<long>(connections.size())) {
      Event event = events.make(n + 1);
      pace.wait_for(n);
      connection.insert(aggregate_type, event.key, event.payload);
      Times &time = times[static_cast<size_t>(n)];
      time.begun_us = now_us();
      connection.commit();
      time.done_us = now_us();
      int64_t lag = time.begun_us - start - static_cast<int64_t>(1e6 * static_cast<double>(n) / rate);
      for (int64_t worst = worst_lag_us; lag > worst && !worst_lag_us.compare_exchange_weak(worst, lag);) {
      }
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 0; i < connections.size(); i++)
    threads.emplace_back(work, std::ref(*connections[i]), i);
  for (auto &thread : threads)
    thread.join();

  if (!write_times(argv[7], times.data(), count))
    die(std::string("cannot write ") + argv[7]);
  printf("{\"events\": %ld, \"worst_lag_ms\": %.1f}\n", count, 1e-3 * static_cast<double>(worst_lag_us.load()));
}
