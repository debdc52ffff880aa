package harness

import "os"

// Soak tells whether the run is `make soak`: whole data sets and long times, where other runs take a part.
func Soak() bool { return os.Getenv("SLOTLINE_SOAK") != "" }
