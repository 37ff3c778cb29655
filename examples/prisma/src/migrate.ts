// Runs prisma/tables.sql.
import { readFileSync } from "node:fs";

import pg from "pg";

const client = new pg.Client(process.env.DATABASE_URL);
await client.connect();
await client.query(readFileSync(new URL("../prisma/tables.sql", import.meta.url), "utf8"));
await client.end();
