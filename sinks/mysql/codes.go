package mysql

// Codes of this package's errors: one meaning each, listed in docs/errors.md.
const (
	codeShardUnknown    = "SL3001" // the layout places slots in a shard that the file does not name
	codeUniqueKey       = "SL3002" // a table has a UNIQUE key besides its primary key
	codeTableDiffers    = "SL3003" // a table in a shard is not what the file says
	codeCollation       = "SL3004" // a key column's collation takes different ids for equal
	codeTableNotMade    = "SL3005" // a month table could not be made
	codeTableNotAltered = "SL3006" // apply could not make or alter a table

	codeOutage       = "SL3101" // a batch waits for a shard that cannot take it now
	codeControl      = "SL3102" // a shard could not be asked, or taken over
	codeTakenOver    = "SL3103" // another owner took the partition over
	codeBetween      = "SL3104" // progress stands inside a batch: something else moved it
	codeRefused      = "SL3105" // the server refuses the transaction, not one table's rows
	codeTableRefused = "SL3106" // the server refuses a table's rows, whatever they hold
	codeDenied       = "SL3107" // the shard's user lacks a privilege, or was not let in
	codeLayoutNewer  = "SL3108" // a shard has a newer layout than the sink
	codeNoPartition  = "SL3109" // the layout does not have a partition that the topic has
	codeRetired      = "SL3110" // a month is retired in the shard: its table is not made again
	codeNotRetired   = "SL3111" // tables retire could not retire a month, or drop its tables
	codeRowTooLong   = "SL3112" // data: a row longer than max_allowed_packet
	codeRowRefused   = "SL3114" // data: the server refuses this row
)
