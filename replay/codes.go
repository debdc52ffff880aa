package replay

// Codes of this package's errors: one meaning each, listed in docs/errors.md.
const (
	codeDatabase   = "SL7501" // the shard's database failed
	codeEngine     = "SL7502" // an engine whose tables cannot be swapped
	codeHistory    = "SL7503" // the log does not hold all of the history
	codeNoTable    = "SL7504" // there is no such table or shard in the file
	codeJobActive  = "SL7505" // another job has one of the tables
	codeNoJob      = "SL7506" // there is no such job
	codeStage      = "SL7507" // what is asked does not go with the job, or its stage
	codeDead       = "SL7508" // events that the live sink took, or that nobody knows of, cannot be applied
	codeNothing    = "SL7509" // zero rows were compared
	codeSnapshot   = "SL7510" // a reader's snapshot is older than the tables that are to be swapped in
	codeLock       = "SL7511" // the tables could not be locked
	codeHalted     = "SL7512" // a partition of the job is halted
	codeLayout     = "SL7513" // the layout changed while the job ran
	codeJobFormat  = "SL7514" // slotline_job is of a later release
	codeDenied     = "SL7515" // the shard's user lacks a privilege
	codeUndecided  = "SL7516" // rows changed faster than they could be compared
	codeNotVisible = "SL7517" // the server does not show who has a snapshot open
	codeCut        = "SL7518" // the log was cut below where a job has read it
	codeAltered    = "SL7531" // a table of the shard is not as the file says
	codeNoTenant   = "SL7532" // the log has no event of a tenant
	codeTo         = "SL7533" // what a tenant's rows are to be written to cannot be, or holds something
)
