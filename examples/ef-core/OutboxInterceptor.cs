using System.Text.Json;
using Microsoft.EntityFrameworkCore;
using Microsoft.EntityFrameworkCore.Diagnostics;

namespace Orders;

/// <summary>Turns the events that the tracked aggregates have raised into rows, which the same SaveChanges writes.</summary>
public sealed class OutboxInterceptor : SaveChangesInterceptor
{
    public static readonly JsonSerializerOptions Json = new(JsonSerializerDefaults.Web);

    public override InterceptionResult<int> SavingChanges(DbContextEventData eventData, InterceptionResult<int> result)
    {
        AddEvents(eventData.Context!);
        return base.SavingChanges(eventData, result);
    }

    public override ValueTask<InterceptionResult<int>> SavingChangesAsync(
        DbContextEventData eventData, InterceptionResult<int> result, CancellationToken cancellationToken = default)
    {
        AddEvents(eventData.Context!);
        return base.SavingChangesAsync(eventData, result, cancellationToken);
    }

    private static void AddEvents(DbContext context)
    {
        foreach (var aggregate in context.ChangeTracker.Entries<Aggregate>().Select(entry => entry.Entity).ToList())
        {
            foreach (var raised in aggregate.TakeEvents())
            {
                context.Add(new OutboxEvent
                {
                    AggregateType = aggregate.GetType().Name,
                    AggregateId = aggregate.Id.ToString(),
                    EventType = raised.GetType().Name,
                    Payload = JsonSerializer.Serialize(raised, raised.GetType(), Json),
                });
            }
        }
    }
}
