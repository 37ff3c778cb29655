/* settings.cpp: every setting of postgresql.conf, in alphabetical order, with its unit, default and range. */
#include "server/base/server.h"

#include "delivery/delivery.h"

extern "C" {
#include "common/hashfn.h"
#include "utils/guc.h"
}

#include "server/base/settings.h"
#include "server/base/sql_function.h"

bool setting_enabled = true;
int setting_workers = 1;
char *setting_cluster_name;
char *setting_allow_networks;
int setting_max_in_flight = 40000;
int setting_max_in_flight_memory = 32 * 1024;
int setting_notice_after = 5 * 60;
int setting_poll_interval = 5000;
int setting_retention = 0;
int setting_dedup_window = 24 * 60 * 60;
int setting_max_attempts = 0;
char *setting_retry;
int setting_shutdown_timeout = 1000;
bool setting_wait_for_standbys = true;
int setting_worker_idle_timeout = 60 * 1000;

static const int TEN_YEARS_S = 3650 * 24 * 60 * 60;

/* Runs a check of the delivery library. An empty text means "not set" and passes. */
static bool passes(const char *text, bool (*check)(const char *, ob_error *) noexcept) {
  ob_error error;
  if (text == NULL || *text == '\0' || check(text, &error))
    return true;
  GUC_check_errcode(ERRCODE_INVALID_PARAMETER_VALUE);
  GUC_check_errdetail("%s", error.detail[0] ? error.detail : error.message);
  if (error.hint[0])
    GUC_check_errhint("%s", error.hint);
  return false;
}

static bool check_retry(char **newval, void **, GucSource) {
  return passes(*newval, ob_check_retry);
}

static bool check_networks(char **newval, void **, GucSource) {
  return passes(*newval, ob_check_networks);
}

void settings_reread(void) {
  ProcessConfigFile(PGC_SIGHUP);
}

/* For outbox.adopt(): the reload that a session has asked for by pg_reload_conf() reaches it some statements later.
 */
SQL_FUNCTION(outbox_reread_settings) {
  settings_reread();
  PG_RETURN_VOID();
}

uint32 settings_idle_hash(void) {
  uint32 hash = hash_bytes((const unsigned char *)setting_cluster_name, (int)strlen(setting_cluster_name));

  return setting_worker_idle_timeout == 0 ? ~hash : hash;
}

void settings_define(void) {
  DefineCustomStringVariable(
      "outbox.allow_networks", "Networks that are refused by default, and to which every sink may connect.",
      "A comma-separated list of CIDR ranges, such as '10.1.0.0/16, fd00::/8'. The default is empty: webhooks, "
      "gRPC and AWS reach public addresses only; Kafka, RabbitMQ, NATS and Redis also private networks, and every "
      "address if the sink's owner is a superuser. A sink's own option allow_networks adds further networks.",
      &setting_allow_networks, "", PGC_SIGHUP, 0, check_networks, NULL, NULL);

  DefineCustomStringVariable(
      "outbox.cluster_name", "The name of this cluster in its events.",
      "Each event has the cluster and database in which it was enqueued, and a worker delivers only those of its "
      "own. The default is empty: the system identifier is used, which pg_upgrade changes and a physical copy "
      "shares. Set a name to keep it through pg_upgrade, or to prevent a copy from delivering. A primary and its "
      "standbys need the same name.",
      &setting_cluster_name, "", PGC_SIGHUP, 0, NULL, NULL, NULL);

  DefineCustomIntVariable(
      "outbox.dedup_window", "How long a dedup key is remembered.",
      "A second event with the same dedup_key is not enqueued within this time. The worker deletes keys by its own "
      "value, so one that is longer for a role or a session alone has no effect. Unit: seconds. Default: 1d. Range: 0 "
      "(not remembered) to 3650d.",
      &setting_dedup_window, 24 * 60 * 60, 0, TEN_YEARS_S, PGC_SUSET, GUC_UNIT_S, NULL, NULL, NULL);

  DefineCustomBoolVariable("outbox.enabled", "Whether workers deliver events.",
                           "Off stops every worker of the cluster. Applications can still enqueue; the events wait. "
                           "Default: on.",
                           &setting_enabled, true, PGC_SIGHUP, 0, NULL, NULL, NULL);

  DefineCustomIntVariable(
      "outbox.max_attempts", "The number of failed deliveries after which an event becomes a dead letter.",
      "A sink's own option max_attempts takes precedence. Default: 0, which means the default of the kind of sink. "
      "Range: 0 to 1000000.",
      &setting_max_attempts, 0, 0, 1000000, PGC_SUSET, 0, NULL, NULL, NULL);

  DefineCustomIntVariable(
      "outbox.max_in_flight", "How many events a worker holds at once.",
      "Counts claimed events until they are acknowledged and durably recorded. A crash can send at most this many "
      "twice. Unit: events. Default: 40000. Range: 1 to 1000000.",
      &setting_max_in_flight, 40000, 1, 1000000, PGC_SIGHUP, 0, NULL, NULL, NULL);

  DefineCustomIntVariable("outbox.max_in_flight_memory", "The maximum memory for the events in flight in a worker.",
                          "Unit: kB. Default: 32MB. Range: 1MB to 1TB.", &setting_max_in_flight_memory, 32 * 1024,
                          1024, 1024 * 1024 * 1024, PGC_SIGHUP, GUC_UNIT_KB, NULL, NULL, NULL);

  DefineCustomIntVariable(
      "outbox.notice_after", "How long a sink may fail or lag before operator events tell of it.",
      "Sinks whose option events names outbox.* get an event when another sink is disabled, has new dead letters, "
      "has failed for this long, has an event that has been due for this long, or has recovered. Unit: seconds. "
      "Default: 5min. Range: 1s to 1d.",
      &setting_notice_after, 5 * 60, 1, 24 * 60 * 60, PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);

  DefineCustomIntVariable(
      "outbox.poll_interval", "The time after which an idle worker looks for events by itself.",
      "A commit wakes the worker at once. This setting is for events that no commit can announce, such as those of "
      "prepared transactions. Unit: milliseconds. Default: 5s. Range: 100ms to 1h.",
      &setting_poll_interval, 5000, 100, 60 * 60 * 1000, PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);

  DefineCustomIntVariable(
      "outbox.retention", "How long delivered events are kept.",
      "They have status SENT in outbox.events, in daily partitions that are dropped as a whole. A sink's own "
      "option retention takes precedence. Unit: seconds. Default: 0 (deleted on delivery). Range: 0 to 3650d.",
      &setting_retention, 0, 0, TEN_YEARS_S, PGC_SUSET, GUC_UNIT_S, NULL, NULL, NULL);

  DefineCustomStringVariable(
      "outbox.retry", "When a failed delivery is tried again.",
      "'100ms..5min' (the delay doubles, with jitter) or steps such as '15s*3, 5m*5' (the last one "
      "repeats). A sink's own option retry takes precedence. The default is empty, which means the default of the "
      "kind of sink.",
      &setting_retry, "", PGC_SUSET, 0, check_retry, NULL, NULL);

  DefineCustomIntVariable("outbox.shutdown_timeout", "How long a stopping worker waits for acknowledgements.",
                          "The next worker sends unacknowledged events again. Unit: milliseconds. "
                          "Default: 1s. Range: 0 to 1min.",
                          &setting_shutdown_timeout, 1000, 0, 60 * 1000, PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);

  DefineCustomBoolVariable(
      "outbox.wait_for_standbys", "Whether an event is delivered only after the synchronous standbys have it.",
      "If synchronous_standby_names is set, events wait until the standbys have confirmed the WAL of their "
      "transactions, also of transactions that did not wait themselves (synchronous_commit = local or off, or a "
      "cancelled wait). If off, an event may have been delivered although its transaction is lost in a failover. "
      "Default: on.",
      &setting_wait_for_standbys, true, PGC_SIGHUP, 0, NULL, NULL, NULL);

  DefineCustomIntVariable(
      "outbox.worker_idle_timeout", "How long a worker with nothing to deliver keeps running.",
      "Then it exits. It starts again within some tens of milliseconds when an event is committed "
      "or due. It exits sooner when other databases wait for a free background worker slot. "
      "Unit: milliseconds. Default: 1min. Range: 0 (it never exits) to 1d.",
      &setting_worker_idle_timeout, 60 * 1000, 0, 24 * 60 * 60 * 1000, PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);

  DefineCustomIntVariable(
      "outbox.workers", "The number of workers of each database with the extension.",
      "Events are distributed over them by key. A change moves keys to their new workers, which "
      "first read the failing events and the blocked keys: of a million, for some seconds. Each worker "
      "uses one of max_worker_processes. Unit: workers. Default: 1. Range: 0 (none) to 32.",
      &setting_workers, 1, 0, 32, PGC_SIGHUP, 0, NULL, NULL, NULL);

  MarkGUCPrefixReserved("outbox");
}
