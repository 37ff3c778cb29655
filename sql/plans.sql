-- Functions that find events by an index plan with the settings of src/server/storage/plan_settings.h (@READS_BY_INDEX@ in src/extension),
-- whatever statistics and the session's own settings say.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
CREATE EXTENSION IF NOT EXISTS outbox_manual;
RESET client_min_messages;

CREATE TEMPORARY VIEW readers AS
SELECT p.oid, p.oid::regproc AS name, coalesce(p.proconfig, '{}') AS config
FROM pg_proc AS p JOIN pg_language AS l ON l.oid = p.prolang
WHERE p.pronamespace IN ('outbox'::regnamespace, 'outbox_internal'::regnamespace) AND l.lanname IN ('sql', 'plpgsql')
  AND regexp_replace(regexp_replace(p.prosrc, '--[^\n]*', '', 'g'), '''[^'']*''', '', 'g')
      ~ '(FROM|JOIN|UPDATE|INTO)\s+(ONLY\s+)?(outbox\.(events|events_pending|events_failed|events_sent|leases|sinks)|outbox_internal\.(failed_attempts|rescan_queue))\M';

-- adopt() rewrites all rows of another origin. lease_events() and ready_events() run within claim_for(). maintain_days() reads all leases.
-- story_sent() reads whole days. The others of this list only INSERT.
SELECT name FROM readers WHERE NOT config && ARRAY['enable_bitmapscan=off'] ORDER BY name::text COLLATE "C";

-- The rest have the whole set; claim_for() and manual_blocked() turn nested loops off again.
SELECT setting, count(*) > 20 AS many, string_agg(name::text, ', ' ORDER BY name::text COLLATE "C") FILTER (WHERE NOT has) AS without
FROM (SELECT r.name, s.setting, s.setting = ANY (r.config) AS has
      FROM readers AS r CROSS JOIN unnest(ARRAY['enable_seqscan=off', 'enable_bitmapscan=off', 'enable_sort=off', 'enable_incremental_sort=off',
             'enable_indexscan=on', 'enable_tidscan=on', 'enable_nestloop=on', 'jit=off', 'max_parallel_workers_per_gather=0',
             'plan_cache_mode=force_generic_plan']) AS s (setting)
      WHERE r.config && ARRAY['enable_bitmapscan=off']) AS s
GROUP BY setting ORDER BY setting COLLATE "C";
