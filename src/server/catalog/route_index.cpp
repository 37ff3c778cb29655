/*
 * route_index.cpp: a sink stands in a hash table under texts of which an event must have one: a pair of its `match`,
 * or the names in `aggregates` or `events` if none of them has a wildcard. Of these it stands under the rarest:
 * '{"region": "eu", "tenant": "42"}' is found by the tenant. Only the sinks without such texts are compared with
 * every event. With 1,000 sinks that name their aggregate an event of an INSERT ... SELECT took 63 us, as long as all
 * were.
 */
#include "server/catalog/route_index.h"

#include "server/base/grow.h"

extern "C" {
#include "common/hashfn.h"
#include "utils/hsearch.h"
}

#include <fnmatch.h>
#include <climits>
#include <span>

typedef enum TextPart { PART_HEADER, PART_AGGREGATE, PART_EVENT } TextPart;

/* A text in a part of an event. */
typedef struct WantedText {
  TextPart part;
  ob_match header; /* its name is empty for the other parts */
} WantedText;

typedef struct WantingSink {
  RouteSink *sink;
  struct WantingSink *next;
} WantingSink;

typedef struct TextEntry {
  WantedText text; /* the key */
  int n;           /* how often sinks have the text */
  WantingSink *first;
} TextEntry;

static RouteSink **any_text; /* sinks that are compared with each event */
static int n_any_text;
static HTAB *by_text; /* NULL = no sink stands under a text */
static bool any_match;

static bool same_text(const ob_text *a, const ob_text *b) {
  return a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

static bool same_header(const ob_match *a, const ob_match *b) {
  return same_text(&a->name, &b->name) && same_text(&a->value, &b->value);
}

static uint32 text_hash(const void *key, Size) {
  const WantedText *text = (const WantedText *)key;
  const ob_match *header = &text->header;

  return hash_combine(hash_bytes((const unsigned char *)header->name.data, (int)header->name.len) + text->part,
                      hash_bytes((const unsigned char *)header->value.data, (int)header->value.len));
}

static int text_compare(const void *a, const void *b, Size) {
  const WantedText *left = (const WantedText *)a, *right = (const WantedText *)b;

  return left->part == right->part && same_header(&left->header, &right->header) ? 0 : 1;
}

static HTAB *make_index(int n) {
  HASHCTL control;

  control.keysize = sizeof(WantedText);
  control.entrysize = sizeof(TextEntry);
  control.hash = text_hash;
  control.match = text_compare;
  control.hcxt = CurrentMemoryContext;
  return hash_create("outbox routes by text", n, &control, HASH_ELEM | HASH_FUNCTION | HASH_COMPARE | HASH_CONTEXT);
}

static WantedText name_text(TextPart part, const char *name) {
  return {part, {{"", 0}, {name, strlen(name)}}};
}

/* A way to find a sink: texts of which each event that it takes has one. Each pair of `match` is a way, and so are
 * the two lists of names. */
static int number_of_ways(const RouteSink *sink) {
  return sink->n_headers + 2;
}

static char **names_of_way(const RouteSink *sink, int way) {
  return way == sink->n_headers ? sink->aggregates : sink->events;
}

/* How many texts the way has; -1: it is none, because a name has a wildcard. */
static int length_of_way(const RouteSink *sink, int way) {
  int n = 0;

  if (way < sink->n_headers)
    return 1;
  for (char *const *names = names_of_way(sink, way); names[n]; n++)
    if (strpbrk(names[n], "*?[\\"))
      return -1;
  return n;
}

static WantedText text_of_way(const RouteSink *sink, int way, int i) {
  if (way < sink->n_headers)
    return {PART_HEADER, sink->headers[way]};
  return name_text(way == sink->n_headers ? PART_AGGREGATE : PART_EVENT, names_of_way(sink, way)[i]);
}

static TextEntry *find_text(const WantedText *text, HASHACTION action, bool *found) {
  return (TextEntry *)hash_search(by_text, text, action, found);
}

static void count_texts(const RouteSink *sink) {
  for (int way = 0; way < number_of_ways(sink); way++)
    for (int i = 0; i < length_of_way(sink, way); i++) {
      bool found;
      const WantedText text = text_of_way(sink, way, i);
      TextEntry *entry = find_text(&text, HASH_ENTER, &found);
      entry->n = found ? entry->n + 1 : 1;
      entry->first = found ? entry->first : NULL;
    }
}

/* How often the most frequent of its texts is wanted. */
static int frequency_of_way(const RouteSink *sink, int way) {
  int most = 0;

  for (int i = 0; i < length_of_way(sink, way); i++) {
    const WantedText text = text_of_way(sink, way, i);
    most = Max(most, find_text(&text, HASH_FIND, NULL)->n);
  }
  return most;
}

/* -1: there is none. */
static int rarest_way(const RouteSink *sink) {
  int rarest = -1, least = INT_MAX;

  for (int way = 0; way < number_of_ways(sink); way++) {
    if (length_of_way(sink, way) < 0)
      continue;
    const int frequency = frequency_of_way(sink, way);
    if (frequency < least) {
      rarest = way;
      least = frequency;
    }
  }
  return rarest;
}

static void put_sink(RouteSink *sink) {
  const int way = by_text ? rarest_way(sink) : -1;

  if (way < 0) {
    any_text[n_any_text++] = sink;
    return;
  }
  for (int i = 0; i < length_of_way(sink, way); i++) {
    const WantedText text = text_of_way(sink, way, i);
    TextEntry *entry = find_text(&text, HASH_FIND, NULL);
    if (entry->first && entry->first->sink == sink) /* a list may have a name twice */
      continue;
    WantingSink *wanting = palloc_object(WantingSink);
    *wanting = {sink, entry->first};
    entry->first = wanting;
  }
}

static bool has_a_way(const RouteSink *sink) {
  for (int way = 0; way < number_of_ways(sink); way++)
    if (length_of_way(sink, way) >= 0)
      return true;
  return false;
}

void route_index(RouteSink *sinks, int n) {
  int with_a_way = 0;

  any_match = false;
  by_text = NULL;
  n_any_text = 0;
  any_text = palloc_array(RouteSink *, n + 1);
  for (const RouteSink &sink : std::span(sinks, n)) {
    any_match |= sink.by_headers;
    with_a_way += has_a_way(&sink);
  }
  if (with_a_way > 0)
    by_text = make_index(with_a_way);
  for (int i = 0; by_text && i < n; i++)
    count_texts(&sinks[i]);
  for (RouteSink &sink : std::span(sinks, n))
    put_sink(&sink);
}

bool route_by_headers(void) {
  int n;

  (void)route_sinks(&n);
  return any_match;
}

bool route_globs_match(char *const *globs, const char *text, const char *prefix) {
  const size_t length = strlen(prefix);

  for (; *globs; globs++)
    if ((length == 0 || strncmp(*globs, prefix, length) == 0) &&
        (strcmp(*globs, "*") == 0 || fnmatch(*globs, text, 0) == 0))
      return true;
  return false;
}

/* As route_refusal(). Operator events go only to the sinks that name them, so that a sink which takes every event
 * gets none. */
static const char *type_refusal(const RouteSink *sink, const RouteEvent *event) {
  static const char operators[] = "outbox.";
  const bool is_operators = strncmp(event->event_type, operators, strlen(operators)) == 0;

  return !route_globs_match(sink->events, event->event_type, is_operators ? operators : "") ? "events"
         : !route_globs_match(sink->aggregates, event->aggregate_type, "")                  ? "aggregates"
                                                                                            : NULL;
}

static bool has_header(const RouteEvent *event, const ob_match *wanted) {
  for (const ob_header &header : std::span(event->headers, event->n_headers))
    if (same_text(&header.name, &wanted->name))
      return !header.binary && same_text(&header.value, &wanted->value);
  return false;
}

static bool has_headers(const RouteEvent *event, const RouteSink *sink) {
  for (const ob_match &header : std::span(sink->headers, sink->n_headers))
    if (!has_header(event, &header))
      return false;
  return true;
}

const char *route_refusal(const RouteSink *sink, const RouteEvent *event) {
  if (sink->by_headers && (sink->n_headers == 0 || !has_headers(event, sink)))
    return "match";
  return type_refusal(sink, event);
}

bool route_takes(const RouteSink *sink, const RouteEvent *event) {
  return route_refusal(sink, event) == NULL;
}

typedef struct Takers {
  RouteSink **list;
  int n, room;
} Takers;

static void add_taker(Takers *takers, RouteSink *sink, const RouteEvent *event) {
  if (!route_takes(sink, event))
    return;
  make_room(takers->list, takers->n, takers->room);
  takers->list[takers->n++] = sink;
}

static void add_takers_by_text(Takers *takers, const RouteEvent *event, const WantedText &text) {
  const TextEntry *entry = find_text(&text, HASH_FIND, NULL);

  for (const WantingSink *each = entry ? entry->first : NULL; each; each = each->next)
    add_taker(takers, each->sink, event);
}

/* All sinks are elements of one array, ordered by OID. */
static int oid_order(const void *a, const void *b) {
  const RouteSink *left = *(RouteSink *const *)a, *right = *(RouteSink *const *)b;

  return left < right ? -1 : left > right;
}

RouteSink **route_takers(const RouteEvent *event, int *n) {
  enum { INITIAL_ROOM = 8 };
  int all;
  Takers takers = {palloc_array(RouteSink *, INITIAL_ROOM), 0, INITIAL_ROOM};

  (void)route_sinks(&all);
  for (RouteSink *sink : std::span(any_text, n_any_text))
    add_taker(&takers, sink, event);
  const int ordered = takers.n;
  if (by_text) {
    for (const ob_header &given : std::span(event->headers, event->n_headers))
      add_takers_by_text(&takers, event, {PART_HEADER, {given.name, given.value}});
    add_takers_by_text(&takers, event, name_text(PART_AGGREGATE, event->aggregate_type));
    add_takers_by_text(&takers, event, name_text(PART_EVENT, event->event_type));
  }
  if (takers.n > ordered && takers.n > 1)
    qsort(takers.list, takers.n, sizeof(RouteSink *), oid_order);
  *n = takers.n;
  return takers.list;
}
