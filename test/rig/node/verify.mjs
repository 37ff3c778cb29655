// Verifies webhook deliveries with the reference implementation of Standard Webhooks.
// stdin: one JSON object per line: {"secret", "body", "headers": {...}}; stdout: "ok" or "bad: why" per line.
// argv[2]: the folder that holds node_modules.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(process.argv[2] + "/");
const { Webhook } = require("standardwebhooks");

for await (const line of createInterface({ input: process.stdin })) {
  const { secret, body, headers } = JSON.parse(line);
  try {
    new Webhook(secret).verify(body, headers);
    console.log("ok");
  } catch (error) {
    console.log("bad: " + error.message);
  }
}
