package guides

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Check fails the test for each command of a program in the guides whose verb or flag there is not.
func Check(t *testing.T, root func() *cobra.Command, program string) {
	t.Helper()
	for _, c := range Commands(t, program) {
		if err := takes(root(), c.Args); err != nil {
			t.Errorf("%s: %s: %v", c.At, c.Line, err)
		}
	}
}

// takes says why a program doesn't take arguments, if it is for a verb or a flag: what those
// who type it put in, such as SITE, is theirs.
func takes(root *cobra.Command, args []string) error {
	cmd, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	// One that only groups others takes any word and flag, and refuses them when it runs.
	groups := cmd.HasSubCommands() && (cmd.Args == nil || cmd.FParseErrWhitelist.UnknownFlags)
	if groups && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		if rest[0] == "…" { // any of them
			return nil
		}
		return fmt.Errorf("%s has no %s", cmd.CommandPath(), rest[0])
	}
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	var unsaid *pflag.ValueRequiredError // a flag that a sentence names
	if err := cmd.ParseFlags(rest); err != nil && !errors.As(err, &unsaid) {
		return err
	}
	var bad error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Deprecated != "" {
			bad = fmt.Errorf("--%s is deprecated: %s", f.Name, f.Deprecated)
		}
	})
	return bad
}
