// insert.mjs FOLDER_OF_NODE_MODULES HOST PORT DATABASE: inserts events as applications with node-postgres do.
import { createRequire } from 'node:module'
import path from 'node:path'

const [modules, host, port, database] = process.argv.slice(2)
const { Client } = createRequire(path.resolve(modules, 'node_modules') + '/')('pg')

const client = new Client({ host, port: Number(port), database, user: 'postgres' })
await client.connect()
const text = `INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload, headers, created_at, status, attempts)
              VALUES ($1, $2, $3, 'node', $4, $5, $6, $7, $8) RETURNING id, status, attempts`
const created = new Date('2021-11-01T10:00:00Z')
const given = '0b7c9a52-7c3e-4a36-9e0e-5a1f0d6f0004'
// Unnamed; named, until the server makes a generic plan of it; and with the results in binary.
const results = [await client.query(text, [given, 'Order', 0, { n: 0 }, { tenant: 7 }, created, 'PENDING', 0])]
for (let n = 1; n <= 7; n++) {
  results.push(await client.query({ name: 'place', text, values: [null, 'Order', n, JSON.stringify({ n }), { tenant: 7 }, created, null, null] }))
}
results.push(await client.query({ text, values: [null, 'Order', '8', { n: 8 }, { tenant: 7 }, created.toISOString(), 'PENDING', '0'], binary: true }))
for (const { rows: [row] } of results) {
  if (!row.id || row.status !== 'PENDING' || row.attempts !== 0) throw new Error(`not filled in: ${JSON.stringify(row)}`)
}
await client.end()
