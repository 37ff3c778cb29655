/*
 * fault_point.h: reports each change of state to a test build (`make test-faults`), which then breaks the process
 * there. A build without OUTBOX_FAULT_POINTS, as each release is, compiles nothing for it.
 */
#pragma once

#ifdef OUTBOX_FAULT_POINTS
void outbox_state_changes(const char *machine, int state, int next) noexcept;
#define OUTBOX_STATE_CHANGES(machine, state, next) outbox_state_changes(machine, (int)(state), (int)(next))
#else
#define OUTBOX_STATE_CHANGES(machine, state, next) ((void)0)
#endif
