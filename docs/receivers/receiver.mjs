import { createServer } from "node:http";
import { Webhook, WebhookVerificationError } from "standardwebhooks";
import { once } from "./once.mjs";

const webhook = new Webhook(process.env.WEBHOOK_SECRET);

createServer(async (request, response) => {
  try {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    await once(webhook.verify(Buffer.concat(chunks), request.headers));
    response.writeHead(204).end();
  } catch (error) {
    if (!(error instanceof WebhookVerificationError)) console.error(error);
    response.writeHead(error instanceof WebhookVerificationError ? 401 : 500).end(error.message);
  }
}).listen(process.env.PORT, "127.0.0.1");
