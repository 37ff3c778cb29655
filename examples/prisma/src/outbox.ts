// Events, in the transaction of the change that they tell of: the database delivers them once it has committed.
import type { Prisma } from "./generated/client.js";

export type Event = Prisma.OutboxEventCreateManyInput;

/** Returns the event's id. */
export async function publish(tx: Prisma.TransactionClient, event: Event): Promise<string> {
  const { id } = await tx.outboxEvent.create({ data: event, select: { id: true } });
  return id;
}

/** Many in one statement. Returns their ids. */
export async function publishAll(tx: Prisma.TransactionClient, events: Event[]): Promise<string[]> {
  const rows = await tx.outboxEvent.createManyAndReturn({ data: events, select: { id: true } });
  return rows.map(({ id }) => id);
}
