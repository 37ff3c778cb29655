-- Everything that the extension makes says what it is.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
CREATE EXTENSION IF NOT EXISTS outbox_manual;
RESET client_min_messages;

CREATE VIEW pg_temp.members AS
  SELECT classid, objid FROM pg_depend WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
    AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'outbox');

-- There is something to look at.
SELECT count(*) > 10 AS has_members FROM pg_temp.members;

-- Objects without a comment (types of tables and their arrays have none of their own)
SELECT pg_describe_object(classid, objid, 0) AS uncommented FROM pg_temp.members
WHERE classid IN ('pg_proc'::regclass, 'pg_class'::regclass, 'pg_foreign_data_wrapper'::regclass)
  AND obj_description(objid, classid::regclass::name) IS NULL ORDER BY 1;

-- Columns of tables and views without a comment; partitions have their parent's
SELECT pg_describe_object('pg_class'::regclass, c.oid, a.attnum) AS uncommented
FROM pg_temp.members JOIN pg_class AS c ON classid = 'pg_class'::regclass AND c.oid = objid
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relkind IN ('r', 'p', 'v', 'm') AND NOT c.relispartition AND col_description(c.oid, a.attnum) IS NULL ORDER BY 1;

-- Settings without a long description, or one that does not name its default
SELECT name AS undescribed FROM pg_settings WHERE name LIKE 'outbox.%' AND extra_desc NOT LIKE '%efault%' ORDER BY 1;

-- Functions that everybody may call
SELECT objid::regprocedure AS public FROM pg_temp.members
WHERE classid = 'pg_proc'::regclass AND has_function_privilege('public', objid, 'EXECUTE') ORDER BY 1;
