-- This part comes last: at commit, the launcher learns that this database has the extension, in this version.
SELECT outbox_internal.announce();
