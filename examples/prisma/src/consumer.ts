// Receives the events as webhooks, and ships what is ordered, each order once.
import express from "express";
import { Webhook, WebhookVerificationError } from "standardwebhooks";

import { prisma } from "./database.js";

interface Delivery {
  type: string;
  data: { id: string; customer: string; total: string };
}

const webhook = new Webhook(process.env.WEBHOOK_SECRET ?? "");

async function shipOnce(event: string, { id, customer, total }: Delivery["data"]): Promise<void> {
  await prisma.$transaction(async (tx) => {
    const [{ first }] = await tx.$queryRaw<[{ first: boolean }]>`SELECT outbox_inbox.mark_processed(${event}::uuid, 'shipping') AS first`;
    if (first) {
      await tx.shipment.create({ data: { orderId: id, customer, total } });
    }
  });
}

const app = express();
app.get("/health", (_request, response) => void response.json({ status: "ok" }));

// The signature is of the bytes that came: the body is parsed after it was checked.
app.post("/webhooks", express.raw({ type: "*/*", limit: "1mb" }), async (request, response) => {
  let delivery: Delivery;
  try {
    delivery = webhook.verify(request.body, request.headers as Record<string, string>) as Delivery;
  } catch (error) {
    if (!(error instanceof WebhookVerificationError)) {
      throw error;
    }
    response.status(401).json({ error: error.message });
    return;
  }
  if (delivery.type === "OrderPlaced") {
    await shipOnce(request.get("webhook-id")!, delivery.data);
  }
  response.sendStatus(200); // after the commit; anything that throws is a 500, and the event comes again
});

app.listen(Number(process.env.PORT), "127.0.0.1");
