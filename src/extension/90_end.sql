-- Last. The launcher learns at commit that this database has the extension, in this version.
SELECT outbox_internal.announce();
