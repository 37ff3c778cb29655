-- Whoever may create in the database may have made the schema beforehand, to keep code in it that others then run.
DO $$
DECLARE
  us oid[] := ARRAY[current_user::regrole, (SELECT e.extowner FROM pg_extension AS e WHERE e.extname = 'outbox')];
  stranger name;
  planted text;
BEGIN
  SELECT r.rolname INTO stranger FROM pg_namespace AS n JOIN pg_roles AS r ON r.oid = n.nspowner
  WHERE n.nspname = 'outbox' AND r.oid <> ALL (us) AND NOT r.rolsuper;
  IF FOUND THEN
    RAISE EXCEPTION 'schema "outbox" belongs to "%"', stranger
      USING ERRCODE = 'insufficient_privilege', DETAIL = 'Its owner could put functions beside those of the extension.',
      HINT = 'ALTER SCHEMA outbox OWNER TO CURRENT_USER; or drop it: CREATE EXTENSION makes it.';
  END IF;
  SELECT (pg_identify_object('pg_proc'::regclass, p.oid, 0)).identity INTO planted
  FROM pg_proc AS p JOIN pg_roles AS r ON r.oid = p.proowner
  WHERE p.pronamespace = 'outbox'::regnamespace AND r.oid <> ALL (us) AND NOT r.rolsuper LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'schema "outbox" has a function of somebody else: %', planted
      USING ERRCODE = 'duplicate_function', DETAIL = 'Who calls the extension''s functions could run it instead.',
      HINT = format('DROP FUNCTION %s;', planted);
  END IF;
END
$$;

