/* grow.h: makes room in a palloc'd array. */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "utils/memutils.h"
}

/* Makes room for element `n` of `list`, which has memory for `max` elements; a NULL list is allocated in `context`.
 * Running out of memory raises an error and leaves `list` and `max` unchanged. */
template <class T> void make_room(T *&list, int n, int &max, MemoryContext context = TopMemoryContext) {
  if (n < max)
    return;
  int more = Max(max * 2, 16);
  const Size size = sizeof(T) * more; /* NOLINT(bugprone-sizeof-expression): T may be a pointer */
  list = list ? (T *)repalloc_huge(list, size) : (T *)MemoryContextAllocHuge(context, size);
  max = more;
}
