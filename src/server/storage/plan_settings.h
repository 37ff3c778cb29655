/*
 * plan_settings.h: the planner's settings for statements that find events by an index. An outage fills columns that
 * were NULL in every row when the table was analysed last, so statistics choose wrong plans when it matters most: a
 * bitmap scan and a sort of all rows for each row that is sought. The worker sets them for its session, owner_plan()
 * for its statements, and make writes them into the install script for @READS_BY_INDEX@ (one line per setting here).
 */
#pragma once

/* X(the setting, its variable, its value in SQL, its value in C) */
#define OUTBOX_PLAN_SETTINGS(X)                                                                                      \
  X(enable_seqscan, enable_seqscan, off, false)                                                                      \
  X(enable_bitmapscan, enable_bitmapscan, off, false)                                                                \
  X(enable_sort, enable_sort, off, false)                                                                            \
  X(enable_incremental_sort, enable_incremental_sort, off, false)                                                    \
  X(enable_indexscan, enable_indexscan, on, true)                                                                    \
  X(enable_tidscan, enable_tidscan, on, true)                                                                        \
  X(enable_nestloop, enable_nestloop, on, true)                                                                      \
  X(jit, jit_enabled, off, false)                                                                                    \
  X(max_parallel_workers_per_gather, max_parallel_workers_per_gather, 0, 0)                                          \
  X(plan_cache_mode, plan_cache_mode, force_generic_plan, PLAN_CACHE_MODE_FORCE_GENERIC_PLAN)
