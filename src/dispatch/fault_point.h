/*
 * fault_point.h: reports each change of state, and the places of a round, to a test build (`make test-faults`), which
 * then breaks the process there. A build without OUTBOX_FAULT_POINTS, as each release is, compiles nothing for it.
 */
#pragma once

#ifdef OUTBOX_FAULT_POINTS
void outbox_state_changes(const char *machine, int state, int next) noexcept;
#define OUTBOX_STATE_CHANGES(machine, state, next) outbox_state_changes(machine, (int)(state), (int)(next))
#else
#define OUTBOX_STATE_CHANGES(machine, state, next) ((void)0)
#endif

/* A place of a round at which its port may let it fail, in the server's test build and in the simulator. */
#if defined(OUTBOX_FAULT_POINTS) || defined(OUTBOX_ROUND_POINTS)
#define OUTBOX_ROUND_POINT(port, name) (port).at(name)
/* The same for the loop (round/loop_port.h): between two transactions, and where no error can be raised. */
#define OUTBOX_LOOP_POINT(port, name) (port).between(name)
#define OUTBOX_LOOP_SIGNAL(port, name) (port).signal(name)
#else
#define OUTBOX_ROUND_POINT(port, name) ((void)0)
#define OUTBOX_LOOP_POINT(port, name) ((void)0)
#define OUTBOX_LOOP_SIGNAL(port, name) ((void)0)
#endif
