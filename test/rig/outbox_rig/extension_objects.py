"""The objects that CREATE EXTENSION outbox made in a database, as text, so that two databases can be compared."""

from .database import Database

# Privileges sorted by their text; the owner has the same name in both databases.
ACL = "(SELECT pg_catalog.array_agg(a::text ORDER BY a::text COLLATE \"C\") FROM pg_catalog.unnest({0}) AS a)"
# Minor releases of 2026 store a version in this column.
OPTIONS = "(SELECT pg_catalog.array_agg(o) FROM pg_catalog.unnest(a.attoptions) AS o WHERE o NOT LIKE 'pg_attver=%')"
OBJECTS = f"""
WITH extension AS (SELECT oid, extconfig, extcondition FROM pg_extension WHERE extname = 'outbox'),
member AS (SELECT d.classid, d.objid FROM pg_depend AS d JOIN extension AS e ON d.refclassid = 'pg_extension'::regclass
           AND d.refobjid = e.oid AND d.deptype = 'e'),
relation AS (SELECT c.* FROM pg_class AS c JOIN member AS m ON m.classid = 'pg_class'::regclass AND m.objid = c.oid),
index AS (SELECT i.indexrelid AS oid, i.indrelid FROM pg_index AS i WHERE i.indrelid IN (SELECT oid FROM relation))

SELECT 'member', pg_describe_object(classid, objid, 0), '' FROM member
UNION ALL
SELECT 'privileges at first', pg_describe_object(i.classoid, i.objoid, i.objsubid), {ACL.format("i.initprivs")}::text
  FROM pg_init_privs AS i JOIN member AS m ON m.classid = i.classoid AND m.objid = i.objoid
UNION ALL
SELECT 'comment', pg_describe_object(t.classoid, t.objoid, t.objsubid), t.description
  FROM pg_description AS t JOIN member AS m ON m.classid = t.classoid AND m.objid = t.objoid
UNION ALL
SELECT 'dumped', c::regclass::text, n FROM extension AS e, unnest(e.extconfig, e.extcondition) AS u(c, n)
UNION ALL
SELECT 'function', p.oid::regprocedure::text,
       pg_get_functiondef(p.oid) || concat_ws(' ', 'owner', p.proowner::regrole, {ACL.format("p.proacl")})
  FROM pg_proc AS p JOIN member AS m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid
UNION ALL
SELECT 'relation', c.oid::regclass::text,
       concat_ws(' ', 'kind', c.relkind, c.relpersistence, 'owner', c.relowner::regrole, 'options', c.reloptions, 'replica identity', c.relreplident,
                 'row security', c.relrowsecurity, c.relforcerowsecurity, 'rules', c.relhasrules, pg_get_partkeydef(c.oid),
                 pg_get_expr(c.relpartbound, c.oid),
                 'partition of', (SELECT i.inhparent::regclass FROM pg_inherits AS i WHERE i.inhrelid = c.oid), {ACL.format("c.relacl")},
                 CASE WHEN c.relkind = 'v' THEN pg_get_viewdef(c.oid) END)
  FROM relation AS c
UNION ALL
SELECT 'columns', c.oid::regclass::text, string_agg(concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod), a.attcollation::regcollation,
         CASE WHEN a.attnotnull THEN 'NOT NULL' END, 'default', pg_get_expr(d.adbin, d.adrelid), a.attidentity, a.attgenerated,
         a.attstorage, a.attcompression, {OPTIONS}, {ACL.format("a.attacl")}), E',\\n  ' ORDER BY a.attnum)
  FROM relation AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  LEFT JOIN pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum GROUP BY c.oid
UNION ALL
SELECT 'constraint', concat_ws(' of ', k.conname, k.conrelid::regclass),
       concat_ws(' ', pg_get_constraintdef(k.oid), 'validated', k.convalidated, 'inherited', k.coninhcount, 'local', k.conislocal)
  FROM pg_constraint AS k JOIN relation AS c ON c.oid = k.conrelid
UNION ALL
SELECT 'index', i.oid::regclass::text, concat_ws(' ', pg_get_indexdef(i.oid), c.reloptions, 'valid', x.indisvalid,
       'of', (SELECT h.inhparent::regclass FROM pg_inherits AS h WHERE h.inhrelid = i.oid))
  FROM index AS i JOIN pg_class AS c USING (oid) JOIN pg_index AS x ON x.indexrelid = i.oid
UNION ALL
SELECT 'trigger', concat_ws(' of ', t.tgname, t.tgrelid::regclass), concat_ws(' ', pg_get_triggerdef(t.oid), 'enabled', t.tgenabled)
  FROM pg_trigger AS t JOIN relation AS c ON c.oid = t.tgrelid
UNION ALL
SELECT 'rule', concat_ws(' of ', r.rulename, r.ev_class::regclass), concat_ws(' ', pg_get_ruledef(r.oid), 'enabled', r.ev_enabled)
  FROM pg_rewrite AS r JOIN relation AS c ON c.oid = r.ev_class
UNION ALL
SELECT 'policy', concat_ws(' of ', p.polname, p.polrelid::regclass), concat_ws(' ', p.polcmd, p.polroles, pg_get_expr(p.polqual, p.polrelid))
  FROM pg_policy AS p JOIN relation AS c ON c.oid = p.polrelid
UNION ALL
SELECT 'sequence', s.seqrelid::regclass::text, concat_ws(' ', s.seqtypid::regtype, seqstart, seqincrement, seqmin, seqmax, seqcache, seqcycle)
  FROM pg_sequence AS s JOIN relation AS c ON c.oid = s.seqrelid
UNION ALL
SELECT 'wrapper', w.fdwname, concat_ws(' ', 'owner', w.fdwowner::regrole, w.fdwhandler::regproc, w.fdwvalidator::regproc, w.fdwoptions,
                                       {ACL.format("w.fdwacl")})
  FROM pg_foreign_data_wrapper AS w JOIN member AS m ON m.classid = 'pg_foreign_data_wrapper'::regclass AND m.objid = w.oid
UNION ALL
SELECT 'event trigger', e.evtname, concat_ws(' ', e.evtevent, e.evtfoid::regproc, e.evtenabled, e.evttags)
  FROM pg_event_trigger AS e JOIN member AS m ON m.classid = 'pg_event_trigger'::regclass AND m.objid = e.oid
UNION ALL
SELECT 'extension', e.extname, concat_ws(' ', 'in', e.extnamespace::regnamespace, 'relocatable', e.extrelocatable) FROM pg_extension AS e WHERE e.extname = 'outbox'
UNION ALL
SELECT 'schema', n.nspname, concat_ws(' ', 'owner', n.nspowner::regrole, {ACL.format("n.nspacl")}) FROM pg_namespace AS n WHERE n.nspname IN ('outbox', 'outbox_internal')
"""


def extension_objects(db: Database) -> dict[tuple[str, str], str]:
    """The definition of each object, by kind and name."""
    return {(kind, name): text or "" for kind, name, text in db.sql(OBJECTS)}


def differences(found: dict, wanted: dict) -> list[str]:
    """A line for each object that is missing, extra or different."""
    lines = [f"lacks {kind} {name}" for kind, name in sorted(wanted.keys() - found.keys())]
    lines += [f"has {kind} {name} besides" for kind, name in sorted(found.keys() - wanted.keys())]
    lines += [f"differs: {kind} {name}\n    is      {found[kind, name]}\n    must be {wanted[kind, name]}"
              for kind, name in sorted(found.keys() & wanted.keys()) if found[kind, name] != wanted[kind, name]]
    return lines
