-- Why an event of a sink of kind outbox_manual waits: outbox.sinks and outbox.story() show it.

-- In a sink of kind outbox_manual blocked_by is not set: outbox.claim() looks for the event for which a key waits.
CREATE OR REPLACE FUNCTION outbox_internal.manual_blocked()
RETURNS TABLE (server oid, n bigint, due_since timestamptz)
LANGUAGE sql STABLE ROWS 10 PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
@READS_BY_INDEX@ SET enable_nestloop = off
AS $$
  WITH here AS MATERIALIZED (SELECT l.origin FROM outbox_internal.library() AS l),
  heads AS MATERIALIZED (
    SELECT m.server, m.name, h.key_hash, min(h.position) AS position
    FROM (SELECT n.server, n.name,
                 'on_dead_letter=block' = ANY (coalesce(s.srvoptions, '{}')) AS block
          FROM outbox_internal.sink_names AS n
          JOIN pg_foreign_server AS s ON s.oid = n.server
          JOIN outbox_internal.wrappers AS w ON w.oid = s.srvfdw
          WHERE w.kind = 'manual' AND n.ordered) AS m
    CROSS JOIN LATERAL (
      (SELECT hashtextextended(e.partition_key, 0) AS key_hash, e.position FROM outbox.events_pending AS e
       WHERE (e.last_attempt_at IS NOT NULL OR e.redrive_late IS NOT NULL)
         AND e.available_at > statement_timestamp() AND e.partition_key IS NOT NULL
         AND e.sink = m.name AND e.origin = (SELECT here.origin FROM here)
       ORDER BY 1, 2 LIMIT 5000)
      UNION ALL
      (SELECT hashtextextended(f.partition_key, 0), f.position FROM outbox.events_failed AS f
       WHERE m.block AND f.sink = m.name AND f.partition_key IS NOT NULL
         AND f.origin = (SELECT here.origin FROM here)
       ORDER BY 1, 2 LIMIT 5000)) AS h
    GROUP BY m.server, m.name, h.key_hash),
  due AS (
    SELECT m.server, e.position, e.origin, hashtextextended(e.partition_key, 0) AS key_hash, e.since
    FROM (SELECT DISTINCT h.server, h.name FROM heads AS h) AS m
    CROSS JOIN LATERAL (
      (SELECT p.position, p.origin, p.blocked_by, p.partition_key, p.created_at AS since
       FROM outbox.events_pending AS p
       WHERE p.available_at IS NULL AND (p.sink, p.position) >= (m.name, 0)
         AND (p.sink, p.position) < (m.name, 9223372036854775807)
       ORDER BY p.sink, p.position LIMIT 5000)
      UNION ALL
      (SELECT p.position, p.origin, p.blocked_by, p.partition_key, greatest(p.created_at, p.available_at)
       FROM outbox.events_pending AS p
       WHERE p.available_at IS NOT NULL AND p.blocked_by IS NULL
         AND (p.sink, p.available_at) >= (m.name, '-infinity')
         AND (p.sink, p.available_at) <= (m.name, statement_timestamp())
       ORDER BY p.sink, p.available_at, p.position LIMIT 5000)) AS e
    WHERE e.blocked_by IS NULL)
  SELECT d.server, count(h.position), min(d.since) FILTER (WHERE h.position IS NULL)
  FROM due AS d
  LEFT JOIN heads AS h ON h.server = d.server AND h.key_hash = d.key_hash AND h.position < d.position
    AND d.origin = (SELECT here.origin FROM here)
  GROUP BY d.server
$$;
COMMENT ON FUNCTION outbox_internal.manual_blocked() IS
  'Part of outbox.sinks: for each ordered sink of kind outbox_manual with a failing event or a dead letter that '
  'blocks its key, the number of events behind such ones among its first 10,000 due events, and since when the first '
  'of the others has been due.';

CREATE OR REPLACE FUNCTION outbox_internal.claim_waits_for(pending bigint) RETURNS text
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
@READS_BY_INDEX@ SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
  WITH event AS (
    SELECT e.position, e.sink, e.origin, hashtextextended(e.partition_key, 0) AS key_hash, s.oid AS server,
           'on_dead_letter=block' = ANY (coalesce(s.srvoptions, '{}')) AS block, n.ordered
    FROM outbox.events_pending AS e
    JOIN outbox_internal.sink_names AS n ON n.name = e.sink
    JOIN pg_foreign_server AS s ON s.oid = n.server
    WHERE e.position = claim_waits_for.pending),
  cause (n, said) AS (
    SELECT 1, format('the program that has claimed it until %s', l.lease_until)
    FROM event AS e JOIN outbox.leases AS l ON l.server = e.server
    WHERE e.position = ANY (l.positions) AND l.lease_until > clock_timestamp()
    UNION ALL
    SELECT 2, format('the end of leases, at %s, that were given before the option ordered of its sink was changed',
                     o.until)
    FROM event AS e CROSS JOIN LATERAL outbox_internal.other_leases(e.server, e.ordered) AS o (until)
    WHERE o.until IS NOT NULL
    UNION ALL
    SELECT 3, format('the program that has claimed other events of the same key until %s', l.lease_until)
    FROM event AS e JOIN outbox.leases AS l
      ON l.server = e.server AND l.ordered AND l.key_hash = e.key_hash AND l.single = 0
    WHERE e.ordered AND l.lease_until > clock_timestamp()
    UNION ALL
    (SELECT 4, format('event %s of the same key, %s: %s',
                      p.id,
                      CASE WHEN p.attempts = 0 THEN 'which waits'
                           ELSE 'which has failed ' || outbox_internal.counted(p.attempts, 'time', 'times') END,
                      left(p.last_error, 200))
     FROM event AS e CROSS JOIN LATERAL (
       SELECT p.id, p.attempts, p.last_error FROM outbox.events_pending AS p
       WHERE p.sink = e.sink AND hashtextextended(p.partition_key, 0) = e.key_hash AND p.position < e.position
         AND p.origin = e.origin AND p.available_at > clock_timestamp()
         AND (p.last_attempt_at IS NOT NULL OR p.redrive_late IS NOT NULL)
       ORDER BY p.position LIMIT 1) AS p
     WHERE e.ordered)
    UNION ALL
    (SELECT 5, format('event %s of the same key, a dead letter: %s', f.id, left(f.last_error, 200))
     FROM event AS e CROSS JOIN LATERAL (
       SELECT f.id, f.last_error FROM outbox.events_failed AS f
       WHERE f.sink = e.sink AND hashtextextended(f.partition_key, 0) = e.key_hash AND f.position < e.position
         AND f.origin = e.origin
       ORDER BY f.position LIMIT 1) AS f
     WHERE e.ordered AND e.block))
  SELECT coalesce((SELECT c.said FROM cause AS c ORDER BY c.n LIMIT 1), 'a program that claims it')
$$;
COMMENT ON FUNCTION outbox_internal.claim_waits_for(bigint) IS
  'Part of outbox.story(): what a due event of a sink of kind outbox_manual waits for.';

