-- This part comes first: the library must not be older than these declarations of its functions. After an update of
-- the package, the server runs the former library until it is restarted.
DO $$
BEGIN
  CREATE OR REPLACE FUNCTION outbox_internal.library_version() RETURNS text LANGUAGE c STABLE PARALLEL SAFE
  SET search_path = pg_catalog, pg_temp
  AS 'MODULE_PATHNAME', 'outbox_library_version';
  IF string_to_array(outbox_internal.library_version(), '.')::integer[]
     < string_to_array('@VERSION@', '.')::integer[] THEN
    RAISE undefined_function;
  END IF;
EXCEPTION WHEN undefined_function THEN
  RAISE EXCEPTION 'the server runs an older library of outbox than version @VERSION@ of the extension needs'
    USING ERRCODE = 'object_not_in_prerequisite_state',
    DETAIL = 'The files are newer than what the server loaded when it started.',
    HINT = 'Restart the server; then the same command again.';
END
$$;
COMMENT ON FUNCTION outbox_internal.library_version() IS 'The version of the library that the server has loaded.';

CREATE OR REPLACE FUNCTION outbox_internal.grant_privilege(statement text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE STRICT
SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_grant_privilege';
COMMENT ON FUNCTION outbox_internal.grant_privilege(text) IS
  'For install and upgrade scripts: runs a GRANT as if a user gave it, so that users'' rights on the same object '
  'stay theirs and remain in their dumps.';

CREATE OR REPLACE FUNCTION outbox_internal.counted(n bigint, one text, many text, most bigint DEFAULT NULL)
RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$ SELECT n || CASE n WHEN 1 THEN ' ' || one WHEN most THEN ' or more ' || many ELSE ' ' || many END $$;
COMMENT ON FUNCTION outbox_internal.counted(bigint, text, text, bigint) IS
  'For messages: a number with its noun in singular or plural. No more than `most` were counted.';

CREATE OR REPLACE FUNCTION outbox_internal.for_client(shown text) RETURNS text
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE -- a block with EXCEPTION starts a subtransaction
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  IF pg_client_encoding() IN ('UTF8', getdatabaseencoding()) THEN
    RETURN shown;
  END IF;
  BEGIN
    PERFORM convert_to(shown, pg_client_encoding());
    RETURN shown;
  EXCEPTION WHEN untranslatable_character OR character_not_in_repertoire THEN
    RETURN regexp_replace(shown, E'[^\x01-\x7f]', '?', 'g');
  END;
END
$$;
COMMENT ON FUNCTION outbox_internal.for_client(text) IS
  'A text that may have words of a peer, for a view of all sinks: if the client''s encoding lacks one of its '
  'characters, each character outside ASCII is a question mark. Otherwise one peer''s answer would make the view '
  'fail for such clients.';

CREATE OR REPLACE FUNCTION outbox_internal.announce() RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_announce';
COMMENT ON FUNCTION outbox_internal.announce() IS
  'Tells the launcher at commit to start workers for this database. Install and upgrade scripts call it.';
