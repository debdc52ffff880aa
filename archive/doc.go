// Package archive keeps closed parts of a line's log as Parquet files in a directory or a bucket, and reads them back: what
// rebuilds and sinks take in place of what the topics no longer hold. It shortens the topics behind itself.
//
// # What it promises
//
//   - A partition's manifest names files that hold its log from offset 0 on without a hole. It is written last and whole, so
//     that a run which was killed has archived what its manifests say, and the next one goes on from there. Files of the
//     killed one that no manifest names are removed.
//   - Of two runs at once one goes on and the other ends: a directory is locked, and in a bucket a manifest is written only
//     over the one that was read, by whoever wrote that.
//   - No record is read from a file whose size or SHA-256 is not what the manifest says.
//   - A log that does not continue what is archived (another topic or cluster, a cut, removed offsets) is refused, and the
//     partition and offsets are named.
//   - Of a topic Trim removes only what was read in files whose digest is right, is older than asked, and is needed by nobody
//     that the caller knows of: trim.go. It asks again before it does.
//   - Memory: one row group and one fetch, or one page of each column, whatever the size of the files.
//
// # What it assumes
//
// A bucket whose service writes an object only if its tag matches (If-Match, If-None-Match); each run asks it.
//
// # How it fails
//
// With fault.Error: an outage is Transient, what needs a person is Fatal.
package archive
