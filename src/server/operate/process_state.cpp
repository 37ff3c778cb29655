/* process_state.cpp: for outbox.doctor(): what the operating system says of a process of the server. A process that a
 * signal or a debugger has stopped takes no SIGTERM, so a hint to terminate it would change nothing. Only Linux
 * tells: elsewhere, and where /proc is hidden, nothing is known.
 */
#include "server/base/library_version.h"
#include "server/base/sql_function.h"

#include <fcntl.h>
#include <unistd.h>

extern "C" {
#include "access/htup_details.h"
#include "funcapi.h"
#include "storage/fd.h"
#include "utils/builtins.h"
}

/* Reads the beginning of /proc/PID/NAME. The text is empty if there is none. */
static void read_proc(int pid, const char *name, char *text, size_t size) {
  char path[64];
  ssize_t length = 0;

  snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
  int file = OpenTransientFile(path, O_RDONLY);
  if (file >= 0) {
    length = read(file, text, size - 1);
    CloseTransientFile(file);
  }
  text[Max(length, 0)] = '\0';
}

SQL_FUNCTION(outbox_process_state) {
  const int pid = PG_GETARG_INT32(0);
  TupleDesc desc = row_type_of(fcinfo, 2);
  Datum values[2] = {0, 0};
  bool nulls[2] = {true, true};
  char text[2048];

  /* "PID (NAME) S ...": a name may contain parentheses. */
  read_proc(pid, "stat", text, sizeof(text));
  const char *name_end = strrchr(text, ')');
  if (name_end && name_end[1] == ' ' && name_end[2] != '\0') {
    values[0] = PointerGetDatum(cstring_to_text_with_len(name_end + 2, 1));
    nulls[0] = false;
  }
  read_proc(pid, "status", text, sizeof(text));
  const char *tracer = strstr(text, "\nTracerPid:");
  const int tracer_pid = tracer ? atoi(tracer + strlen("\nTracerPid:")) : 0;
  if (tracer_pid > 0) {
    values[1] = Int32GetDatum(tracer_pid);
    nulls[1] = false;
  }
  PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(desc, values, nulls)));
}
