using System.Buffers.Binary;
using System.Security.Cryptography;

namespace Orders;

/// <summary>
/// Ids that only ever grow. EF Core sorts the INSERTs of a SaveChanges by key, so this is what keeps an aggregate's events in the order in which it
/// raised them; Guid.CreateVersion7() and the provider's own generator are random within a millisecond.
/// </summary>
public static class UuidV7
{
    private static long last; // milliseconds and, in the 12 bits below, a counter

    public static Guid Next()
    {
        long seen, next;
        do
        {
            seen = Interlocked.Read(ref last);
            next = Math.Max(DateTimeOffset.UtcNow.ToUnixTimeMilliseconds() << 12, seen + 1);
        }
        while (Interlocked.CompareExchange(ref last, next, seen) != seen);

        var bytes = new byte[16];
        RandomNumberGenerator.Fill(bytes);
        BinaryPrimitives.WriteInt64BigEndian(bytes, (next >> 12 << 16) | 0x7000 | (next & 0xFFF));
        bytes[8] = (byte)((bytes[8] & 0x3F) | 0x80);
        return new Guid(bytes, bigEndian: true);
    }
}
