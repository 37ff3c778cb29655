/* grow.h: an array that grows. */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "utils/memutils.h"
}

/* Makes room for one more than `n`; `max` has room now. NULL: a first array, in `context`. Out of memory is an error,
 * after which the array and `max` are as before. */
template <class T> void make_room(T *&list, int n, int &max, MemoryContext context = TopMemoryContext) {
  if (n < max)
    return;
  int more = Max(max * 2, 16);
  const Size size = sizeof(T) * more; /* NOLINT(bugprone-sizeof-expression): T may be a pointer */
  list = list ? (T *)repalloc_huge(list, size) : (T *)MemoryContextAllocHuge(context, size);
  max = more;
}
