using Microsoft.EntityFrameworkCore;
using Microsoft.EntityFrameworkCore.Metadata;
using Npgsql;

namespace Orders;

public class ShopContext(DbContextOptions<ShopContext> options) : DbContext(options)
{
    public DbSet<Order> Orders => Set<Order>();
    public DbSet<Shipment> Shipments => Set<Shipment>();

    protected override void OnModelCreating(ModelBuilder model)
    {
        model.Entity<Order>(order =>
        {
            order.ToTable("orders");
            order.Property(o => o.Id).ValueGeneratedNever();
            order.Property(o => o.Total).HasColumnType("numeric(12,2)");
        });
        model.Entity<Shipment>(shipment =>
        {
            shipment.ToTable("shipments");
            shipment.Property(s => s.Total).HasColumnType("numeric(12,2)");
        });
        model.Entity<OutboxEvent>(row =>
        {
            row.ToTable("events", "outbox", table => table.ExcludeFromMigrations()); // the extension's
            row.HasKey(e => e.Id); // in the table (id, sink): one row per sink, and the server chooses the sinks
            row.Property(e => e.Id).ValueGeneratedNever();
            row.Property(e => e.Payload).HasColumnType("jsonb");
            row.Property(e => e.Headers).HasColumnType("jsonb");
            foreach (var property in row.Metadata.GetProperties())
            {
                property.SetAfterSaveBehavior(PropertySaveBehavior.Throw); // insert-only
            }
        });
    }

    /// <summary>Npgsql takes no URLs.</summary>
    public static string ConnectionString(string url)
    {
        var uri = new Uri(url);
        var user = uri.UserInfo.Split(':', 2).Select(Uri.UnescapeDataString).ToArray();
        return new NpgsqlConnectionStringBuilder
        {
            Host = uri.Host, Port = uri.Port > 0 ? uri.Port : 5432, Database = uri.AbsolutePath.TrimStart('/'), Username = user[0], Password = user[1],
        }.ConnectionString;
    }
}
