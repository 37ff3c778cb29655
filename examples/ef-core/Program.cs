using Microsoft.EntityFrameworkCore;
using Orders;

// One program, three modes: service, consumer, migrate.
var mode = args.FirstOrDefault() ?? "service";
var builder = WebApplication.CreateBuilder();
builder.WebHost.UseUrls($"http://127.0.0.1:{Environment.GetEnvironmentVariable("PORT") ?? (mode == "service" ? "8080" : "0")}");
builder.Services.AddDbContext<ShopContext>(options => options
    .UseNpgsql(ShopContext.ConnectionString(Environment.GetEnvironmentVariable("DATABASE_URL")!))
    .UseSnakeCaseNamingConvention()
    .AddInterceptors(new OutboxInterceptor()));
if (mode == "consumer")
{
    builder.Services.AddHostedService<Shipping>();
}

var app = builder.Build();
if (mode == "migrate")
{
    // With migrations of your own, `dotnet ef database update`. Either leaves out what is ExcludeFromMigrations.
    await using var scope = app.Services.CreateAsyncScope();
    var database = scope.ServiceProvider.GetRequiredService<ShopContext>().Database;
    await database.ExecuteSqlRawAsync(database.GenerateCreateScript());
    return;
}

app.MapGet("/health", () => Results.Ok());
app.MapPost("/orders", async (PlaceOrder request, ShopContext db) =>
    await PlaceAll([request], db) is [var id] ? Results.Created($"/orders/{id}", new { id }) : Results.UnprocessableEntity());
app.MapPost("/orders/batch", async (PlaceOrder[] requests, ShopContext db) =>
    await PlaceAll(requests, db) is { } ids ? Results.Created("/orders", new { ids }) : Results.UnprocessableEntity());
await app.RunAsync();

// All or none. The ids, or null where the credit check refuses one.
static async Task<Guid[]?> PlaceAll(PlaceOrder[] requests, ShopContext db)
{
    await using var transaction = await db.Database.BeginTransactionAsync();
    var orders = requests.Select(request => Order.Place(request.Customer, request.Total)).ToArray();
    db.AddRange(orders);
    await db.SaveChangesAsync(); // orders and, by the interceptor, their events: one round trip
    if (orders.Any(order => order.Total > 1000.00m))
    {
        return null; // the transaction is disposed of, and so both rows are rolled back
    }
    await transaction.CommitAsync();
    return orders.Select(order => order.Id).ToArray();
}

public record PlaceOrder(string Customer, decimal Total);
