package config

// Codes of this package, one meaning each; docs/errors.md lists them.
const (
	codeUnreadable = "SL1001" // the file cannot be read
	codeSyntax     = "SL1002" // the file is not YAML of the kind slotline reads
	codeUnknownKey = "SL1003" // a key that slotline does not know
	codeLayout     = "SL1004" // slots, shards and tenants do not make a layout
	codeMissing    = "SL1005" // a key that must be there is not
	codeTwice      = "SL1006" // a key stands twice
	codeValue      = "SL1007" // a value of the wrong kind or form
	codeRange      = "SL1008" // a number, size or duration out of its bounds
	codeLater      = "SL1009" // a key or value whose code comes in a later release
	codeDSN        = "SL1010" // a DSN that cannot be taken apart
	codeVariable   = "SL1011" // a variable of a DSN, a user or a password that cannot be filled in
	codeSameDB     = "SL1012" // two shards, or a shard and the outbox, are one database
	codeMemory     = "SL1013" // batches × groups do not fit into limits.memory_bytes_max
	codeName       = "SL1014" // a name that cannot name topics, groups and tables
	codeConflict   = "SL1015" // two keys whose values contradict each other
	codeColumn     = "SL1016" // a role or index names a column that the table does not have
	codeFile       = "SL1017" // a certificate or key that cannot be used
)
