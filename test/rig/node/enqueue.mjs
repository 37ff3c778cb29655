// enqueue.mjs FOLDER_OF_NODE_MODULES HOST PORT DATABASE: calls outbox.enqueue() as applications with node-postgres do.
import { createRequire } from 'node:module'
import path from 'node:path'

const [modules, host, port, database] = process.argv.slice(2)
const { Client } = createRequire(path.resolve(modules, 'node_modules') + '/')('pg')

const client = new Client({ host, port: Number(port), database, user: 'postgres' })
await client.connect()
const text = 'SELECT outbox.enqueue($1, $2, $3, $4, headers => $5) AS id'
for (const values of [['Order', 1, 'node', { n: 1 }, { tenant: 7 }], ['Order', '1', 'node', JSON.stringify({ n: 1 }), JSON.stringify({ tenant: 7 })]]) {
  const { rows: [row] } = await client.query(text, values)
  if (!row.id) throw new Error('no id')
}
await client.end()
