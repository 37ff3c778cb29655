/* settings.h: the settings of postgresql.conf, one variable each. Described where they are defined: settings.cpp. */
#pragma once

#include "server/base/server.h"

extern bool setting_enabled;
extern int setting_workers;
extern char *setting_cluster_name;
extern char *setting_allow_networks;
extern int setting_max_in_flight;
extern int setting_max_in_flight_memory; /* kB */
extern int setting_poll_interval;        /* ms */
extern int setting_processed_retention;  /* s */
extern int setting_retention;            /* s */
extern int setting_dedup_window;         /* s */
extern int setting_max_attempts;         /* 0 = the sink kind's own */
extern char *setting_retry;              /* "" = the sink kind's own */
extern int setting_shutdown_timeout;     /* ms */
extern bool setting_wait_for_standbys;
extern int setting_worker_idle_timeout; /* ms; 0 = never */

void settings_define(void);

/* At the start of a process, once its handlers are set: the server discards a reload that comes between the fork and
 * them, and nobody would repeat it. */
void settings_reread(void);

/* Of the settings that give a database at rest something to do: which events are its own, and whether it may rest. */
uint32 settings_idle_hash(void);
