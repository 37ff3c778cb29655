/*
 * look_again.h: in which databases a worker looks for the extension once more, though the last one has found none
 * that it can use.
 *
 * The commit of CREATE EXTENSION or ALTER EXTENSION UPDATE marks its database, and a worker starts. Other changes
 * make an extension usable and mark nothing: a schema that gets its name back, a catalog that was wrong for a while,
 * a library that was installed. Without another look such a database had no worker until the server was restarted. A
 * look costs a worker that connects, so databases without the extension, of which there may be thousands, have one by
 * turns.
 */
#pragma once

#include "server/shmem/shared_state.h"

/* Databases by their places in SharedState.databases. */
class LookAgain final {
public:
  /* At a rescan: chooses databases whose extension is of another version, those where a commit has found no worker,
   * so that they have the extension, and some of the rest by turns. `all`: all of them, after a reload. */
  void choose(bool all);
  bool is_chosen(int i) const { return chosen_[i]; }
  /* A worker has looked. */
  void looked(Oid database);

private:
  bool chosen_[OUTBOX_MAX_DATABASES] = {};
  int next_ = 0; /* whose turn it is */
};

/* The launcher's one object. */
LookAgain &look_again(void);
