import express from "express";
import { Webhook, WebhookVerificationError } from "standardwebhooks";
import { once } from "./once.mjs";

const webhook = new Webhook(process.env.WEBHOOK_SECRET);
const app = express();

app.post("/hooks", express.raw({ type: "*/*", limit: "10mb" }), async (request, response) => { // its own limit is 100 kB: 413
  await once(webhook.verify(request.body, request.headers));
  response.status(204).end();
});
app.use((error, request, response, next) => {
  response.status(error instanceof WebhookVerificationError ? 401 : error.status ?? 500).end(error.message);
});
app.use(express.json()); // for the routes after this one
app.listen(process.env.PORT, "127.0.0.1");
