"""Writes ../hash_vectors.tsv with the hashes of other implementations: see README.md for how to run it."""
import codecs
import pathlib
import random
import subprocess
import sys
import zlib

import xxhash

SLOTS = 1024

# One U+FFFD per bad byte. Python's own "replace" and Java's decoder use one per broken sequence.
codecs.register_error("each_byte", lambda e: ("\ufffd" * (e.end - e.start), e.end))


def java_int_hash(text):
    h = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        h = (h * 31 + unit) & 0xFFFFFFFF
    return h


def tenants():
    yield from (b"", b"0", b"a", b"ab", b"abc", b"abcd", b"abcde", b"UA", b"DL", b"WN", b"carrier-00042")
    yield from (b"polygenelubricants",)  # hashCode is Integer.MIN_VALUE: Math.abs leaves it negative
    yield from (b"1", b"42", b"1234567890", b"9223372036854775807", b"18446744073709551615", b"-1")
    yield from (b"acme corp", b" leading", b"trailing ", b"UPPER", b"upper", b"a/b", b"a:b", b"tab\there")
    for text in ("Zürich", "naïve", "Ωmega", "日本航空", "中国国际航空公司", "Аэрофлот", "e\u0301", "\u00e9", "\ufeffbom", "\uffff"):
        yield text.encode()
    for text in ("😀", "a😀b", "𝒳𝒴", "\U0010ffff", "✈️ 飛行機 🛫"):  # surrogate pairs in UTF-16
        yield text.encode()
    yield from (b"\xff", b"a\xffb", b"\xe2\x82", b"\xc0\x80", b"\xed\xa0\x80", b"\xf0\x9f\x98x", b"\x80\x80\x80")  # not UTF-8
    yield b"x" * 63
    yield b"x" * 64
    yield bytes(range(0x30, 0x70))  # 64 bytes, all different
    yield "é".encode() * 32  # 64 bytes, 32 units
    rng = random.Random(20261130)
    for length in list(range(1, 37)) + [47, 48, 49, 55, 56, 57, 63, 64]:  # every tail of every block size
        yield bytes(rng.choice(b"abcdefghijklmnopqrstuvwxyz0123456789-_") for _ in range(length))


def main():
    rows = list(tenants())
    texts = [row.decode("utf-8", "each_byte") for row in rows]
    lines = "".join(f"{row.hex()}\t{text.encode('utf-16-be').hex()}\n" for row, text in zip(rows, texts))
    jvm = subprocess.run(["java", "-cp", sys.argv[1], "JvmHashes.java"], input=lines.encode(), stdout=subprocess.PIPE,
                         check=True, cwd=pathlib.Path(__file__).parent).stdout.decode().splitlines()
    assert len(jvm) == len(rows)
    out = ["tenant_hex", "xxh64", "crc32", "murmur2", "murmur2_signed", "java", "java_signed",
           "slot_xxh64", "slot_crc32", "slot_murmur2", "slot_java", "tenant"]
    table = ["\t".join(out)]
    for row, text, line in zip(rows, texts, jvm):
        crc, murmur_signed, murmur, java_signed, java = map(int, line.split("\t"))
        assert crc == zlib.crc32(row), row
        assert java_signed & 0xFFFFFFFF == java_int_hash(text), row
        xxh = xxhash.xxh64(row).intdigest()
        table.append("\t".join(str(cell) for cell in (
            row.hex(), xxh, crc, murmur, murmur_signed, java, java_signed,
            xxh % SLOTS, crc % SLOTS, murmur % SLOTS, java % SLOTS,
            "".join(c if c.isprintable() and c not in " \ufffd" else f"\\u{ord(c):04x}" for c in text))))
    path = pathlib.Path(__file__).parent.parent / "hash_vectors.tsv"
    path.write_text("\n".join(table) + "\n", encoding="utf-8", newline="\n")
    print(f"{len(rows)} tenants; negative murmur2 {sum(int(l.split()[1]) < 0 for l in jvm)}, negative java "
          f"{sum(int(l.split()[3]) < 0 for l in jvm)}")


main()
