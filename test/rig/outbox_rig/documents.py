"""JSON documents as applications write them, with difficult text, from a seed."""

import json
import random

ALPHABET = [*"abcxyz 0189/", "ä", "€", "😀", '"', "\\", "\b", "\f", "\n", "\r", "\t", "\x01", "\x1f", "\x7f", "\u2028"]
NUMBERS = ["0", "-0", "7", "-1", "42", "9999", "10000", "100000000", "-10001", "2147483648", "9223372036854775808", "0.0", "1.0", "1.50",
           "0.0001", "-0.00010", "12345.6789", "99999999.9999", "1e3", "1E-7", "123e-20", "1e400", "-1e-400", "3.14159265358979323846264338327950288"]


class Documents:
    def __init__(self, seed: int):
        self.random = random.Random(seed)

    def string(self, most: int = 40) -> str:
        text = "".join(self.random.choices(ALPHABET, k=self.random.randrange(most)))
        return json.dumps(text, ensure_ascii=self.random.random() < 0.3)

    def number(self) -> str:
        if self.random.random() < 0.5:
            return self.random.choice(NUMBERS)
        whole, fraction = (str(self.random.randrange(10 ** self.random.randrange(1, 25))) for _ in range(2))
        return self.random.choice(["", "-"]) + whole + self.random.choice(["", ".0", f".{fraction}", f".00{fraction}"])

    def value(self, depth: int) -> str:
        kind = self.random.randrange(6 if depth > 0 else 4)
        if kind == 0:
            return self.random.choice(["true", "false", "null"])
        if kind == 1:
            return self.number()
        if kind in (2, 3):
            return self.string()
        # Sometimes more than 32 members, after which jsonb stores an offset.
        count = self.random.choice([0, 1, 2, 3, 5, 8, 70 if depth == 1 else 4])
        members = (self.value(depth - 1) for _ in range(count))
        if kind == 4:
            return "[" + ", ".join(members) + "]"
        return "{" + ",".join(f"{self.string(6)}:{member}" for member in members) + "}"
