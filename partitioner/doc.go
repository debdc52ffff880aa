// Package partitioner answers one question: where does a tenant's row live? It turns a tenant (and, for a
// spread tenant, the row's spread field) into a slot, and a slot into a Kafka partition and a MySQL shard; and a
// point in time into the month of a month table. It is pure: no I/O, no clock, no globals, no goroutines.
//
// What it promises:
//
//   - A [Layout] is immutable and safe for concurrent use. [New] returns one only if each hash slot and each
//     placed slot is in exactly one shard and exactly one partition.
//   - [Layout.Route] depends on the layout and its arguments alone, allocates nothing, and needs no more than a
//     table look-up beside the hash.
//   - The same data in another order (shards, tenants, ranges) is the same layout: it has the same
//     [Layout.Digest], the same shard numbers and the same routes.
//   - Hashes agree bit by bit with testdata/hash_vectors.tsv, which other implementations produced: Kafka's
//     murmur2, Java's String.hashCode, zlib's crc32, and the reference xxHash.
//   - [Diff] names everything that a newer layout would change, and says whether rows would have to move.
//
// What it assumes: that the number of slots and the hash never change in the life of a line, that placed slot
// numbers are never given to another tenant, and that the caller has checked a tenant's length (1 to 64 bytes)
// before it routes. Route answers for every string, the empty one too.
//
// How it fails: parsers return an error that quotes what they could not read. [New], [Spec.WithPartitions] and
// [Spec.After] return [Problems], which holds every problem found, each with the parties it names, so that a
// caller who knows where they were written can add file and line. Nothing panics on bad data.
package partitioner
