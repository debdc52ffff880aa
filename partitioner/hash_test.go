package partitioner

import (
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
)

// The file was produced by other implementations, see testdata/gen/README.md.
func TestHashesAgreeWithOtherImplementations(t *testing.T) {
	data, err := os.ReadFile("testdata/hash_vectors.tsv")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	if len(lines) < 90 {
		t.Fatalf("only %d lines", len(lines))
	}
	columns := make(map[string]int)
	for i, name := range strings.Split(lines[0], "\t") {
		columns[name] = i
	}
	negative := make(map[Hash]int)
	for _, line := range lines[1:] {
		cells := strings.Split(line, "\t")
		bytes, err := hex.DecodeString(cells[columns["tenant_hex"]])
		if err != nil {
			t.Fatal(err)
		}
		tenant := string(bytes)
		number := func(column string) int64 {
			n, err := strconv.ParseInt(cells[columns[column]], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		for h := range Hash(len(hashNames)) {
			want, err := strconv.ParseUint(cells[columns[h.String()]], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if got := h.Sum(tenant); got != want {
				t.Errorf("%s(%q) = %d, want %d", h, tenant, got, want)
			}
			if got := h.SumBytes(bytes); got != want {
				t.Errorf("%s(%q) of bytes = %d, want %d", h, tenant, got, want)
			}
			if got := int64(h.Sum(tenant) % 1024); got != number("slot_"+h.String()) {
				t.Errorf("%s(%q) mod 1024 = %d, want %d", h, tenant, got, number("slot_"+h.String()))
			}
		}
		for h, got := range map[Hash]uint32{Murmur2: murmur2(tenant), Java: javaHash(tenant)} {
			want := number(h.String() + "_signed")
			if int64(int32(got)) != want {
				t.Errorf("%s(%q) = %d before the sign is dropped, want %d", h, tenant, int32(got), want)
			}
			if want < 0 {
				negative[h]++
			}
		}
		if got, want := Lane(tenant, 7), int(number("crc32")%7); got != want {
			t.Errorf("Lane(%q, 7) = %d, want %d", tenant, got, want)
		}
	}
	if negative[Murmur2] < 10 || negative[Java] < 10 {
		t.Errorf("too few negative hashes to prove anything: %v", negative)
	}
}

// abs(hashCode("polygenelubricants")) is negative in Java, and was an index out of range elsewhere.
func TestSumIsNeverNegative(t *testing.T) {
	r := random(t)
	texts := []string{"polygenelubricants"}
	for range 2000 {
		texts = append(texts, randomText(r))
	}
	for _, text := range texts {
		for _, h := range []Hash{Murmur2, Java} {
			if sum := h.Sum(text); sum > signMask {
				t.Errorf("%s(%q) = %d has the sign bit", h, text, sum)
			}
		}
		if sum := CRC32.Sum(text); sum > 1<<32-1 {
			t.Errorf("crc32(%q) = %d has more than 32 bits", text, sum)
		}
	}
}

// Whatever an implementation does with the sign, modulo a power of two the slot is the same.
func TestSignConventionsAgreeModuloPowersOfTwo(t *testing.T) {
	r := random(t)
	for range 2000 {
		text := randomText(r)
		for h, signed := range map[Hash]int32{Murmur2: int32(murmur2(text)), Java: int32(javaHash(text))} {
			for slots := 1; slots <= SlotsMax; slots *= 2 {
				masked := int(h.Sum(text)) % slots
				unsigned := int(uint32(signed)) % slots
				floorMod := (int(signed)%slots + slots) % slots
				if masked != unsigned || masked != floorMod {
					t.Fatalf("%s(%q) mod %d: masked %d, unsigned %d, floorMod %d", h, text, slots, masked, unsigned, floorMod)
				}
			}
		}
	}
}

func TestJavaHashAgreesWithUTF16Units(t *testing.T) {
	r := random(t)
	for range 5000 {
		text := randomText(r)
		want := uint32(0)
		for _, unit := range utf16.Encode([]rune(text)) {
			want = want*31 + uint32(unit)
		}
		if got := javaHash(text); got != want {
			t.Fatalf("javaHash(%q) = %d, want %d", text, got, want)
		}
	}
}

func TestHashNames(t *testing.T) {
	for h := range Hash(len(hashNames)) {
		got, err := ParseHash(h.String())
		if err != nil || got != h {
			t.Errorf("ParseHash(%s) = %v, %v", h, got, err)
		}
	}
	for _, name := range []string{"", "XXH64", "md5", "xxh64 ", "Hash(0)"} {
		if h, err := ParseHash(name); err == nil {
			t.Errorf("ParseHash(%q) = %s, want an error", name, h)
		} else if !strings.Contains(err.Error(), strconv.Quote(name)) {
			t.Errorf("ParseHash(%q) does not quote it: %v", name, err)
		}
	}
	var zero Hash
	if zero != XXH64 {
		t.Error("the zero value is not the default")
	}
	if _, err := Hash(9).MarshalText(); err == nil {
		t.Error("an unknown hash was marshalled")
	}
	if got := Hash(9).String(); got != "Hash(9)" {
		t.Errorf("String = %s", got)
	}
}

func TestLaneIsWithinLanes(t *testing.T) {
	r := random(t)
	for range 2000 {
		lanes := 1 + r.IntN(99)
		if lane := Lane(randomText(r), lanes); lane < 0 || lane >= lanes {
			t.Fatalf("lane %d of %d", lane, lanes)
		}
	}
}
