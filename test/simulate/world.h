/*
 * world.h: one database and what happens to it: producers, users, faults, clocks, and the workers, in one thread and
 * with virtual time. A worker lets others act at each place where its transaction could be interrupted (pass()).
 */
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "dispatch/shard_set.h"
#include "test/simulate/random.h"
#include "test/simulate/script.h"
#include "test/simulate/table.h"
#include "test/simulate/truth.h"

namespace simulate {

class Worker;

inline constexpr int MAX_WORKERS = 4;

struct SinkWorld {
  SinkRule rule;
  int64_t latency_us = 1000;
  int hang_percent = 0;
  int retry = 0, lost_answer = 0, reject = 0, defer = 0, twice = 0; /* of a thousand answers */
  bool returns_after_reject = false;
  bool down = false, stopped = false, unrecordable = false;
  uint64_t fingerprint = 1;
};

struct Settings {
  int max_in_flight;
  int poll_ms;
  int n_sinks, n_keys;
  int sync_percent;    /* of the producers' commits */
  int serial_percent;  /* of the producers lock the keys that they write */
  int wake_percent;    /* of the commits wake the workers */
  int redrive_percent; /* of the dead letters are redriven at once, as by a script */
  bool has_standby;    /* it must confirm events before they are sent */
};

/* A worker's slot in shared memory. */
struct DrainingShards {
  SinkId sink;
  dispatch::ShardSet shards;
};
struct Slot {
  Incarnation pid = 0;
  dispatch::ShardSet shards = {};
  std::vector<DrainingShards> draining;
  bool shards_changed = false, needs_wakeup = false, recalled = false;
  dispatch::Moment wake_at = dispatch::MOMENT_NEVER;
  dispatch::Moment start_at = dispatch::MOMENT_NONE; /* not before, when it has no worker */
  std::unique_ptr<Worker> worker;
  int crash_in = 0, fail_in = 0; /* at the n-th step from now; 0 = not */
  bool busy = false;             /* within its loop */
};

struct Step {
  enum Kind : uint8_t {
    ACTION,
    INSERT,
    END,
    RESOLVE,
    UNLOCK,
    UP,
    RESUME,
    GOOD_ROW,
    GOOD_SINK,
    ANSWER,
    GIVE_UP,
    REDRIVE,
    WAL_WRITER
  };
  int64_t at_us;
  uint64_t order;
  Kind kind;
  int64_t a, b, c, d;
};

class World {
public:
  World(const Script &script, int level, bool verbose);
  ~World();

  /* Runs to the end; throws Broken. */
  void run();
  int64_t events() const { return table_.last_position(); }
  const std::vector<std::pair<int64_t, std::string>> &history() const { return history_; }

  /* ---- for the workers ---- */
  Table &table() { return table_; }
  Truth &truth() { return truth_; }
  const Settings &settings() const { return settings_; }
  dispatch::Now now() const { return {{now_us_}, now_us_ + wall_offset_us_}; }
  SinkWorld &sink(SinkId id) { return sinks_[id - 1]; }
  int n_sinks() const { return settings_.n_sinks; }
  int workers() const { return workers_; }
  std::array<Slot, MAX_WORKERS> &slots() { return slots_; }
  bool settling() const { return settling_; }
  /* Others act; may throw. */
  void pass(Worker &worker);
  void became_dead_letter(int64_t position);
  /* Can the row not be recorded for this sink? */
  bool is_bad(int64_t position, SinkId sink) const {
    return sinks_[sink - 1].unrecordable || bad_rows_.count(position) > 0;
  }
  Random &random() { return random_; }

  /* ---- for the library ---- */
  uint64_t nature(int64_t position) const { return natures_[position]; }
  uint64_t tries(int64_t position) const { return tries_[position]; }
  uint64_t count_try(int64_t position) { return tries_[position]++; }
  void schedule(int64_t in_us, Step::Kind kind, int64_t a, int64_t b, int64_t c, int64_t d);
  void answered(int slot);

  /* position 0: it concerns all. */
  void log(int64_t position, const char *format, ...) __attribute__((format(printf, 3, 4)));

private:
  bool step(int64_t until_us);
  void take(const Step &step);
  void act(const ScriptAction &action);
  void run_worker(int index);
  void kill_worker(int index, const char *how);
  void kill_server();
  void wake(bool rescan);

  void begin_producer(uint64_t drawn);
  void insert(int64_t producer);
  void end_producer(int64_t producer);
  void resolve(Xid xid, bool commit);
  void lock_rows(uint64_t drawn);
  void change_row(uint64_t drawn);
  void redrive(uint64_t drawn, bool all);
  void redrive_row(int64_t position, Xid xid, bool force);
  std::vector<int64_t> rows(bool failed);
  uint64_t hash_of_key(uint64_t key) const;
  bool may_lock_key(uint64_t key, Xid xid);

  void check_waiting();
  void settle();
  void run_until_quiet(const char *why);
  bool is_quiet();
  void check_delivered();
  bool check_other_sinks();

  /* What a user's transaction has done; it counts once that commits. */
  struct Pending {
    enum Kind : uint8_t { DELETED, TIMED, MOVED, REDRIVEN } kind;
    Xid xid;
    int64_t position;
    SinkId sink;
    uint64_t key_hash;
    bool force;
  };
  bool apply(const Pending &change);

  struct Producer {
    Xid xid, sub;
    std::vector<std::pair<SinkId, uint64_t>> rows;
    size_t next;
    uint64_t drawn;
    bool serial, in_sub;
    std::vector<int64_t> positions;
  };

  const Script &script_;
  bool verbose_;
  Settings settings_;
  Random random_;
  Table table_;
  std::vector<SinkRule> rules_;
  Truth truth_;
  std::vector<SinkWorld> sinks_;
  int64_t now_us_ = 1000000000, wall_offset_us_ = 500000000000;
  uint64_t order_ = 0;
  std::vector<Step> agenda_;
  std::vector<Producer> producers_;
  std::vector<Pending> pending_;
  std::unordered_map<uint64_t, Xid> key_locks_;
  std::unordered_map<Xid, std::vector<int64_t>> rows_of_;
  std::set<int64_t> bad_rows_;
  std::vector<uint64_t> natures_, tries_;
  std::array<Slot, MAX_WORKERS> slots_;
  int workers_ = 1, depth_ = 0;
  Incarnation last_pid_ = 0;
  bool settling_ = false;
  std::vector<std::pair<int64_t, std::string>> history_;
};

}  // namespace simulate
