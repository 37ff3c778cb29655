-- A dump carries the partitions by themselves, but for the one that the extension makes.
SELECT pg_catalog.pg_extension_config_dump('outbox.processed_events_other', '');
