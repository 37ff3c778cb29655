namespace Orders;

/// <summary>
/// A row of outbox.events: written once, in the transaction that changes the data, and never read, changed or deleted from here. Columns that
/// are not mapped (status, sink, position, partition_key …) are filled by the server.
/// </summary>
public class OutboxEvent
{
    public Guid Id { get; init; } = UuidV7.Next();
    public required string AggregateType { get; init; }
    public required string AggregateId { get; init; }
    public required string EventType { get; init; }
    public required string Payload { get; init; }
    public string? Headers { get; init; }
    public DateTime CreatedAt { get; init; } = DateTime.UtcNow;
}
