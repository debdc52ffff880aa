package consumers

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kgo"
)

// randomFrame is a frame by lz4's own writer, and its content.
func randomFrame(t *testing.T, random *rand.Rand) (frame, content []byte) {
	t.Helper()
	content = make([]byte, random.IntN(150_000))
	spread := 1 + random.IntN(256) // of bytes: 256 do not compress, and are stored
	for i := range content {
		content[i] = byte(random.IntN(spread))
	}
	options := []lz4.Option{lz4.BlockSizeOption([]lz4.BlockSize{lz4.Block64Kb, lz4.Block256Kb, lz4.Block4Mb}[random.IntN(3)]),
		lz4.ChecksumOption(random.IntN(2) == 0), lz4.BlockChecksumOption(random.IntN(8) == 0)}
	if random.IntN(2) == 0 {
		options = append(options, lz4.SizeOption(uint64(len(content))))
	}
	var b bytes.Buffer
	w := lz4.NewWriter(&b)
	if err := w.Apply(options...); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), content
}

// What is unpacked is what was packed; a frame of a kind that is not read here, that does not fit or is cut is left alone.
func TestUnpackLZ4(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	unpacked := 0
	for range 60 {
		frame, content := randomFrame(t, random)
		const before = "before"
		got, ok := unpackLZ4(append(make([]byte, 0, len(before)+len(content)), before...), frame)
		if checksums := frame[4]&0x10 != 0; ok == checksums {
			t.Fatalf("unpacked: %v; flags %x", ok, frame[4])
		}
		if !ok {
			continue
		}
		unpacked++
		if string(got[:len(before)]) != before || !bytes.Equal(got[len(before):], content) {
			t.Fatalf("%d bytes, wanted %d, or other ones", len(got)-len(before), len(content))
		}
		if n := len(content); n > 0 {
			if got, ok := unpackLZ4(make([]byte, 0, n-1), frame); ok || len(got) > n-1 {
				t.Fatal("a buffer that is too small was enough")
			}
		}
		for range 20 {
			if _, ok := unpackLZ4(make([]byte, 0, len(content)), frame[:random.IntN(len(frame))]); ok {
				t.Fatal("a frame that is cut was unpacked")
			}
			broken := bytes.Clone(frame) // Kafka's checksum would tell; what is unpacked is anything that fits
			broken[random.IntN(len(broken))] ^= 1 << random.IntN(8)
			if got, _ := unpackLZ4(make([]byte, 0, len(content)), broken); len(got) > len(content) {
				t.Fatal("more was unpacked than fits")
			}
		}
		if _, ok := unpackLZ4(make([]byte, 0, 2*len(content)), append(bytes.Clone(frame), frame...)); ok {
			t.Fatal("a second frame was passed over")
		}
	}
	if unpacked < 20 {
		t.Errorf("%d frames of 60 were unpacked", unpacked)
	}
}

// By whatever way a batch is decompressed, its bytes are those of the client's own decompressor, and its bound holds.
func TestFoldingDecompressesAsTheClient(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	const bytesMax = 100_000
	f, err := newFolding(bytesMax)
	if err != nil {
		t.Fatal(err)
	}
	for range 60 {
		frame, content := randomFrame(t, random)
		got, err := f.Decompress(frame, kgo.CodecLz4)
		want, wantErr := f.client.Decompress(frame, kgo.CodecLz4)
		if (err == nil) != (wantErr == nil) || (err == nil) != (len(content) <= bytesMax) {
			t.Fatalf("%d bytes: %v, wanted %v", len(content), err, wantErr)
		}
		if err == nil && !bytes.Equal(got, foldRecords(nil, want)) {
			t.Fatalf("%d bytes differ", len(content))
		}
	}
}
