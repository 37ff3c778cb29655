// Reads webhook deliveries with the official libraries.
// stdin: one JSON object per line: {"library", "secret", "body", "headers": {...}}, the body in base64. Library: standardwebhooks
// or svix verify it, and stdout gets "ok" or "bad: why"; cloudevents reads it, and stdout gets the event as JSON.
// argv[2]: the folder that holds node_modules.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(process.argv[2] + "/");
const { HTTP } = require("cloudevents");

function read({ library, secret, body, headers }) {
  const bytes = Buffer.from(body, "base64");
  if (library === "cloudevents") {
    const event = HTTP.toEvent({ headers, body: bytes.toString() });
    return JSON.stringify({ ...event.toJSON(), valid: event.validate() });
  }
  new (require(library).Webhook)(secret).verify(bytes, headers);
  return "ok";
}

for await (const line of createInterface({ input: process.stdin })) {
  try {
    console.log(read(JSON.parse(line)));
  } catch (error) {
    console.log("bad: " + error.message);
  }
}
