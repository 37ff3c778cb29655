/* settings.h: one variable for each setting of postgresql.conf. settings.cpp describes them. */
#pragma once

#include "server/base/server.h"

extern bool setting_enabled;
extern int setting_workers;
extern char *setting_cluster_name;
extern char *setting_allow_networks;
extern int setting_max_in_flight;
extern int setting_max_in_flight_memory; /* kB */
extern int setting_notice_after;         /* s */
extern int setting_poll_interval;        /* ms */
extern int setting_retention;            /* s */
extern int setting_dedup_window;         /* s */
extern int setting_max_attempts;         /* 0 = the sink kind's own */
extern char *setting_retry;              /* "" = the sink kind's own */
extern int setting_shutdown_timeout;     /* ms */
extern bool setting_wait_for_standbys;
extern int setting_worker_idle_timeout; /* ms; 0 = never */

void settings_define(void);

/* Reads postgresql.conf again. A background process calls it once its signal handlers are set, because the SIGHUP of
 * a reload between the fork and that moment is lost. */
void settings_reread(void);

/* A hash of the settings that can give an idle database work: outbox.cluster_name, which decides on the origin of its
 * events, and whether outbox.worker_idle_timeout is 0. */
uint32 settings_idle_hash(void);
