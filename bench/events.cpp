/*
 * events.cpp: events as lines for COPY: aggregate type, key, event type, payload.
 *
 *   events fixed|wide|small|mixed FIRST LAST AGGREGATE_TYPE
 */
#include <cstdlib>

#include "events.h"

int main(int argc, char **argv) {
  bench::Events::Kind kind{};
  if (argc != 5 || !bench::Events::parse(argv[1], kind)) {
    fprintf(stderr, "events: fixed|wide|small|mixed FIRST LAST AGGREGATE_TYPE\n");
    return 1;
  }
  bench::Events events(kind);
  for (long n = atol(argv[2]), last = atol(argv[3]); n <= last; n++) {
    bench::Event event = events.make(n);
    std::string line = std::string(argv[4]) + "\t" + event.key + "\torder.created\t" + event.payload + "\n";
    if (fwrite(line.data(), 1, line.size(), stdout) != line.size())
      return 1;
  }
  return fclose(stdout) == 0 ? 0 : 1;
}
