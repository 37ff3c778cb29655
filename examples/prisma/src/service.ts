// The order service: an order and its event in one transaction.
import express, { type NextFunction, type Request, type Response } from "express";

import { prisma } from "./database.js";
import type { Order } from "./generated/client.js";
import { type Event, publish, publishAll } from "./outbox.js";

class Refused extends Error {
  constructor(readonly status: number, message: string) {
    super(message);
  }
}

function read(body: unknown): { customer: string; total: string } {
  const { customer, total } = (body ?? {}) as Record<string, unknown>;
  if (typeof customer !== "string" || !customer || typeof total !== "string" || !/^\d{1,10}(\.\d{1,2})?$/.test(total)) {
    throw new Refused(400, "an order has a customer and a total such as 12.50");
  }
  return { customer, total };
}

function placed(order: Order): Event {
  const payload = { id: order.id, customer: order.customer, total: order.total.toFixed(2) };
  return { aggregateType: "Order", aggregateId: order.id, eventType: "OrderPlaced", payload };
}

function checkCredit(order: Order): void {
  if (order.total.gt(1000)) {
    throw new Refused(422, "the credit check refuses a total over 1000.00");
  }
}

const app = express();
app.use(express.json({ limit: "1mb" }));

app.get("/health", async (_request, response) => {
  await prisma.$queryRaw`SELECT 1`;
  response.json({ status: "ok" });
});

app.post("/orders", async (request, response) => {
  const data = read(request.body);
  const order = await prisma.$transaction(async (tx) => {
    const order = await tx.order.create({ data });
    await publish(tx, placed(order));
    checkCredit(order); // both rows are written: what throws here rolls them back, and nothing is published
    return order;
  });
  response.status(201).json({ id: order.id });
});

app.post("/orders/batch", async (request, response) => {
  if (!Array.isArray(request.body)) {
    throw new Refused(400, "a batch is an array of orders");
  }
  const data = request.body.map(read);
  const orders = await prisma.$transaction(async (tx) => {
    const orders = await tx.order.createManyAndReturn({ data });
    await publishAll(tx, orders.map(placed));
    orders.forEach(checkCredit);
    return orders;
  });
  response.status(201).json({ ids: orders.map(({ id }) => id) });
});

app.use((error: unknown, _request: Request, response: Response, _next: NextFunction) => {
  const { status = 500, message } = error as Partial<Refused>;
  if (status >= 500) {
    console.error(error);
  }
  response.status(status).json({ error: status < 500 ? message : "internal error" });
});

app.listen(Number(process.env.PORT), "127.0.0.1");
