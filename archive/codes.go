package archive

// Codes of this package's errors: one meaning each, listed in docs/errors.md.
const (
	codeStorage   = "SL7601" // the directory or bucket does not answer
	codeDamaged   = "SL7602" // a file that is not as its manifest says, or is gone
	codeManifest  = "SL7603" // a manifest that is none, or another line's
	codeHole      = "SL7604" // the topic begins after what is archived ends
	codeOtherLog  = "SL7605" // the topic is not the one that was archived, or was cut below what is
	codeTaken     = "SL7606" // another run is at work, or has taken over
	codeNoArchive = "SL7607" // the file has no archive
	codeEmpty     = "SL7609" // nothing is archived
	codeUnguarded = "SL7608" // the bucket's service writes over an object though its tag does not match
	codeChanged   = "SL7610" // what was looked at for a removal is not as it was
)
