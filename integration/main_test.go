package integration

import (
	"testing"

	"github.com/slotline/slotline/integration/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
