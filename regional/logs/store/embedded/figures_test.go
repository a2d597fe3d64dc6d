package embedded

import (
	"testing"

	"muster.dev/muster/regional/logs/store/storetest"
)

func TestFigures(t *testing.T) { storetest.Figures(t, factory) }
