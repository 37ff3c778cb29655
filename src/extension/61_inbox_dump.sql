-- A dump contains the partitions. The one that the extension makes must be registered for it.
SELECT pg_catalog.pg_extension_config_dump('outbox.processed_events_other', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_internal.processed_dropped', '');
