import pg from "pg";

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
pool.on("error", console.error); // an idle connection that breaks must not end the process

export async function once(event) {
  const db = await pool.connect();
  let failure;
  try {
    await db.query("BEGIN");
    const noted = await db.query("INSERT INTO processed_events (event_id) VALUES ($1) ON CONFLICT DO NOTHING", [event.id]);
    if (noted.rowCount === 1)
      await db.query("INSERT INTO work (event_id, event_type, data) VALUES ($1, $2, $3)",
        [event.id, event.type, JSON.stringify(event.data)]);
    await db.query("COMMIT");
  } catch (error) {
    failure = error;
    throw error;
  } finally {
    db.release(failure); // a connection that failed is closed, which rolls back
  }
}
