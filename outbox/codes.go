package outbox

// Codes of the faults that this package makes; docs/errors.md lists them.
const (
	codeDatabase       = "SL5001" // the outbox database failed or refuses
	codeLaneDamaged    = "SL5002" // a lane's stored state cannot be read
	codeFormatNewer    = "SL5003" // a table of the outbox has a format of a later release
	codeTableForeign   = "SL5004" // a table of the outbox's name is not one of slotline's
	codeLanesChanged   = "SL5005" // outbox.lanes differs from the lanes that the database has
	codeIncrement      = "SL5006" // auto_increment_increment is not 1
	codeNotApplied     = "SL5007" // the outbox database lacks slotline's tables
	codeDeadFlood      = "SL5008" // too many dead letters in a minute: the lane halts
	codeGenerations    = "SL5009" // no generation is left
	codeTailScanFailed = "SL5010" // the topic's tail cannot be read
	codeMaxvalueFilled = "SL5011" // a lane table's last partition holds rows and cannot be split
	codeLeaseLost      = "SL5012" // a lane's lease is lost while it was relayed
	codeWentBack       = "SL5013" // a lane table gives out ids again that the lane has passed
	codeDeadOlder      = "SL5020" // slotline_dead lacks the columns of settled letters
)
