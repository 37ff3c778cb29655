using System.Text;
using System.Text.Json;
using Confluent.Kafka;
using Microsoft.EntityFrameworkCore;

namespace Orders;

/// <summary>The consumer: one shipment for each order, however often its event comes.</summary>
public class Shipping(IServiceScopeFactory scopes, ILogger<Shipping> log) : BackgroundService
{
    protected override async Task ExecuteAsync(CancellationToken stopping)
    {
        await Task.Yield(); // Consume() blocks, and the host is still starting
        using var consumer = new ConsumerBuilder<string, string>(new ConsumerConfig
        {
            BootstrapServers = Environment.GetEnvironmentVariable("KAFKA_BOOTSTRAP_SERVERS"),
            GroupId = "shipping",
            AutoOffsetReset = AutoOffsetReset.Earliest,
            EnableAutoCommit = false,
        }).Build();
        consumer.Subscribe("outbox.event.Order");
        while (!stopping.IsCancellationRequested)
        {
            var record = consumer.Consume(stopping);
            while (!await TryShip(record.Message, stopping))
            {
                await Task.Delay(TimeSpan.FromSeconds(1), stopping); // no event is passed over
            }
            consumer.Commit(record); // after the transaction
        }
        consumer.Close();
    }

    private async Task<bool> TryShip(Message<string, string> message, CancellationToken stopping)
    {
        try
        {
            await Ship(message, stopping);
            return true;
        }
        catch (Exception e) when (e is not OperationCanceledException)
        {
            log.LogError(e, "not shipped, will be tried again");
            return false;
        }
    }

    private async Task Ship(Message<string, string> message, CancellationToken stopping)
    {
        var eventId = Guid.Parse(Encoding.ASCII.GetString(message.Headers.GetLastBytes("id")));
        await using var scope = scopes.CreateAsyncScope();
        var db = scope.ServiceProvider.GetRequiredService<ShopContext>();
        await using var transaction = await db.Database.BeginTransactionAsync(stopping);
        var firstTime = (await db.Database.SqlQuery<bool>($"SELECT outbox_inbox.mark_processed({eventId}, 'shipping')").ToListAsync(stopping)).Single();
        if (firstTime)
        {
            var order = JsonSerializer.Deserialize<OrderPlaced>(message.Value, OutboxInterceptor.Json)!;
            db.Add(new Shipment { OrderId = order.Id, Customer = order.Customer, Total = order.Total });
            await db.SaveChangesAsync(stopping);
        }
        await transaction.CommitAsync(stopping);
    }
}
