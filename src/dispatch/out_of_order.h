/*
 * out_of_order.h: delivered events that may have overtaken an earlier row of their key: one that is a dead letter,
 * fails, or was redriven. Delivered rows leave the table, and a later redrive must know that it comes too late. So
 * the earlier row is marked with the position that went before it (overtaken_by) when the delivery is recorded; and
 * while the earlier row cannot be marked, the delivery is not recorded.
 */
#pragma once

#include <cstdint>
#include <span>

#include "dispatch/in_flight.h"
#include "dispatch/memory.h"
#include "dispatch/time.h"
#include "dispatch/types.h"

namespace dispatch {

/* What becomes of the earlier row. */
enum class EarlierRowAction : uint8_t {
  MARK_DEAD_LETTER, /* it is marked where it is, in events_failed */
  MARK_PENDING,     /* it fails, or was redriven by force: marked where it is, in events_pending */
  DEAD_LETTER_AGAIN /* it was redriven to go in order, and comes too late */
};

/* The row of an earlier event of the key. */
struct EarlierRow {
  int64_t position;
  RowHandle handle;
  bool dead;              /* it stands in events_failed */
  bool redriven_in_order; /* it must not go after later events of its key */
};

/* An earlier row, to be locked. */
struct OvertakenRow {
  int64_t position;
  int64_t overtaken_by; /* the first delivered event of its key after it */
  RowHandle handle;     /* where it was read; where it is locked */
  uint32_t key;
  EarlierRowAction action;
  bool locked; /* by this transaction */
};

/* A key of which something was delivered. */
struct SentKey {
  InFlightEvent *last; /* delivered; by position */
  uint32_t first, n;   /* of the delivered events */
};

class OutOfOrder {
public:
  /* In a transaction that records, and which began at `now`. */
  void begin(Moment now) noexcept;

  /* An event that was delivered and may have overtaken something. */
  void add(InFlightEvent *sent) noexcept;

  /* All were added. Those after an event of their key that has failed and is not recorded yet are put off. */
  void group(const InFlight &in_flight) noexcept;
  std::span<const SentKey> keys() const noexcept { return keys_; }

  /* A row of a key (its index in keys()) before the last delivered event, and not marked. */
  void found(const InFlight &in_flight, uint32_t key, const EarlierRow &row) noexcept;

  /* All were found. They are marked in the order of their action, then of their position. The caller locks them, and
   * notes `locked` and `handle`. */
  void all_found() noexcept;
  std::span<OvertakenRow> rows() noexcept { return rows_; }
  std::span<OvertakenRow> rows(EarlierRowAction action) noexcept;
  /* The one in events_failed; NULL when there is none. */
  OvertakenRow *find_dead_letter(int64_t position) noexcept;

  /* Delivered events after a row that could not be locked are put off. */
  void put_off_after_unlocked() noexcept;

  /* The transaction is over: frees memory. */
  void end() noexcept;

private:
  void put_off_after(const SentKey &key, int64_t position) noexcept;
  void put_off_after_unrecorded(const InFlight &in_flight) noexcept;
  std::span<InFlightEvent *> after(const SentKey &key, int64_t position) noexcept;

  Moment put_off_until_ = MOMENT_NONE;
  Vector<InFlightEvent *> events_; /* by key and position */
  Vector<SentKey> keys_;
  Vector<OvertakenRow> rows_;
};

}  // namespace dispatch
