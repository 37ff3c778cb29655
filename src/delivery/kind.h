/*
 * kind.h: the border between outbox and a kind of sink in a library of its own. The library gives one struct, by the
 * function that has the name OB_KIND_INIT, and outbox calls nothing else of it. Its functions have the contracts of
 * those of the same name in delivery.h, and only C types cross. So both sides may be built by different compilers and
 * from different versions of the C++ classes behind the functions. outbox's own kinds have a struct as well.
 *
 * Outbox hands over no struct of callbacks (log, complete, wake, mask secrets, judge an address, send by HTTP). A
 * library's state is its own: outbox takes what the library has (engine_fd, collect, next_log) and tells it what it
 * must know (set_database, set_networks), both on the caller's thread. So no thread of a kind enters outbox, and
 * neither side calls the other while it is being called. The masks, the network guard and the HTTP loop are in each
 * library, from the kit's archive.
 */
#ifndef OUTBOX_KIND_H
#define OUTBOX_KIND_H

#include "delivery/delivery.h"

/* The interface is this file and the types of delivery.h. Its number is raised by each change of them after which a
 * kind must be compiled anew. */
enum { OB_KIND_MAGIC = 0x6f627831, OB_KIND_INTERFACE = 8 };

#define OB_KIND_FUNCTION(name) __typeof__(ob_##name) *name

typedef struct ob_sink_kind {
  uint32_t magic; /* OB_KIND_MAGIC */
  uint32_t size;  /* sizeof(ob_sink_kind) */
  uint32_t interface;
  int pg_version;      /* PG_VERSION_NUM of the server's headers */
  const char *name;    /* "rabbitmq"; NULL for outbox's own kinds, which share a struct */
  const char *version; /* of the kind's extension, for messages */
  OB_KIND_FUNCTION(set_database);
  OB_KIND_FUNCTION(set_networks);
  OB_KIND_FUNCTION(check_options);
  OB_KIND_FUNCTION(check_owner);
  OB_KIND_FUNCTION(advise);
  OB_KIND_FUNCTION(option_names);
  OB_KIND_FUNCTION(target_options);
  OB_KIND_FUNCTION(common_options);
  OB_KIND_FUNCTION(checker_open);
  OB_KIND_FUNCTION(checker_open_with_secrets);
  OB_KIND_FUNCTION(checker_check);
  OB_KIND_FUNCTION(checker_check_new);
  OB_KIND_FUNCTION(checker_max_payload);
  OB_KIND_FUNCTION(checker_close);
  OB_KIND_FUNCTION(preview_open);
  OB_KIND_FUNCTION(preview_parts);
  OB_KIND_FUNCTION(preview_close);
  OB_KIND_FUNCTION(engine_open); /* an engine of this library's own, for sinks of this kind */
  OB_KIND_FUNCTION(engine_fd);
  OB_KIND_FUNCTION(engine_close);
  OB_KIND_FUNCTION(sink_open);
  OB_KIND_FUNCTION(sink_share);
  OB_KIND_FUNCTION(sink_keep_acknowledgements);
  OB_KIND_FUNCTION(sink_begin_slowly);
  OB_KIND_FUNCTION(sink_end_pause);
  OB_KIND_FUNCTION(sink_close);
  OB_KIND_FUNCTION(sink_closed);
  OB_KIND_FUNCTION(sink_get_status);
  OB_KIND_FUNCTION(sink_next_resumed);
  OB_KIND_FUNCTION(submit);
  OB_KIND_FUNCTION(collect);
  OB_KIND_FUNCTION(probe_start);
  OB_KIND_FUNCTION(probe_poll);
  OB_KIND_FUNCTION(probe_finish);
  OB_KIND_FUNCTION(next_log);
} ob_sink_kind;

/* How an ob_checker, ob_preview, ob_sink and ob_probe begin. */
typedef struct ob_handle {
  const ob_sink_kind *library; /* which made it */
} ob_handle;

/* Outbox looks up this function in a library. The function may return NULL: out of memory. */
#define OB_KIND_INIT "_PG_outbox_sink_kind_init"
typedef const ob_sink_kind *(*ob_kind_init)(void);

#endif
