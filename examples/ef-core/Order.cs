using System.Text.Json.Serialization;

namespace Orders;

/// <summary>Whatever raises events. They become rows of outbox.events when its changes are saved: see OutboxInterceptor.</summary>
public abstract class Aggregate
{
    private readonly List<object> raised = [];

    public Guid Id { get; private set; } = UuidV7.Next();

    protected void Raise(object domainEvent) => raised.Add(domainEvent);

    internal IReadOnlyList<object> TakeEvents()
    {
        var taken = raised.ToList();
        raised.Clear();
        return taken;
    }
}

public class Order : Aggregate
{
    public string Customer { get; private set; } = "";
    public decimal Total { get; private set; }

    public static Order Place(string customer, decimal total)
    {
        var order = new Order { Customer = customer, Total = total };
        order.Raise(new OrderPlaced(order.Id, customer, total));
        return order;
    }
}

/// <summary>The event's payload: what the service writes and the consumer reads. The total is a string, digit for digit.</summary>
public record OrderPlaced(
    Guid Id,
    string Customer,
    [property: JsonNumberHandling(JsonNumberHandling.WriteAsString | JsonNumberHandling.AllowReadingFromString)] decimal Total);

/// <summary>The consumer's.</summary>
public class Shipment
{
    public long Id { get; private set; }
    public Guid OrderId { get; init; }
    public string Customer { get; init; } = "";
    public decimal Total { get; init; }
}
