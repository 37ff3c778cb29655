/*
 * crash_mark.h: keeps code of a kind of sink that crashes from restarting the cluster for ever. A worker leaves a
 * mark while it calls such code; a mark that is still there in a later worker was left by a crash. After the second
 * crash the code is not called again until another build of it is installed, or until outbox.resume(). Code in
 * outbox.so needs no mark.
 */
#pragma once

#include <sys/stat.h>

#include "server/base/server.h"

#include "delivery/delivery.h"

/* The marks of each worker are its own. Without a call, as in a session, marks are only read. */
void crash_marks_init(int worker_index);

/* Before code of `library` is called on behalf of `object`, a server or a validator, of this database. Returns false
 * when that has crashed twice in this file, or in any if the file is not known (st_ino = 0): do not call it.
 * Otherwise crash_mark_remove() must follow. */
bool crash_mark_leave(Oid object, const struct stat *library);
/* The error of an object that has crashed twice. */
void crash_mark_error(ob_error *error);
void crash_mark_remove(Oid object);

/* Removes the marks of all workers. Returns false if the object had crashed twice in none. */
bool crash_marks_forget(Oid object);

/* Another build of a library is another file, or has another size or time. No clock is compared, which may be set
 * back. */
bool is_same_file(const struct stat *a, const struct stat *b);
