package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"muster.dev/muster/cmd/internal/control"
	"muster.dev/muster/control/backup"
	"muster.dev/muster/internal/disk"
)

func backupCmd(f *flags) *cobra.Command {
	return &cobra.Command{Use: "backup FILE", Short: "Write a backup of control while it runs",
		Long: `Write a backup of what control keeps and nobody could make again: all objects of the fleet,
its CA, the keys and tokens of people and roles, the timeline. Control goes on meanwhile. Run it
where control keeps its data, as from cron. FILE is written whole or not at all; - is the output.

It holds every secret of the fleet: encrypt it before it leaves the machine. Not in it: audit logs;
the objects of an external etcd; the repository of sites' software; and what regionals, alerting
and Cortex keep (docs/operations.md).`,
		Example: `  muster backup /var/backups/muster-$(date +%F).tar.gz
  muster backup - | age -r KEY | ssh vault 'cat > muster.tar.gz.age'`, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.load(cmd)
			if err != nil {
				return err
			}
			if args[0] == "-" {
				out := cmd.OutOrStdout()
				if onScreen(out) {
					return errors.New("it is an archive with all secrets of the fleet and not for a screen: pipe it on, see --help")
				}
				return control.Backup(cmd.Context(), c, out)
			}
			return writeBackup(args[0], func(w io.Writer) error { return control.Backup(cmd.Context(), c, w) }, cmd.OutOrStdout())
		}}
}

// onScreen says whether w is a terminal.
func onScreen(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	st, err := file.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

// writeBackup writes beside the file, verifies what is there, and gives it its name.
func writeBackup(name string, write func(io.Writer) error, out io.Writer) error {
	if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is there already; say another name", name)
	}
	part := name + ".part"
	w, err := disk.OS{}.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = write(w)
	if err = errors.Join(err, w.Sync(), w.Close()); err != nil {
		_ = os.Remove(part)
		return err
	}
	m, size, err := verify(part)
	if err != nil {
		_ = os.Remove(part)
		return err
	}
	if err := (disk.OS{}).Rename(part, name); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: %.1f MB, %d files, read again and whole\n", name, float64(size)/1e6, len(m.Files))
	return nil
}

func verify(name string) (*backup.Manifest, int64, error) {
	r, err := os.Open(name)
	if err != nil {
		return nil, 0, err
	}
	defer r.Close()
	st, err := r.Stat()
	if err != nil {
		return nil, 0, err
	}
	m, err := backup.Read(r, "")
	return m, st.Size(), err
}

func restoreCmd(f *flags) *cobra.Command {
	return &cobra.Command{Use: "restore FILE", Short: "Make control's data directory of a backup",
		Long: `Make control's directory, below the data directory, of a file of muster backup; - is the input.
It must not be there: stop control and move the old one away. Then start control with the fleet's
configuration. Sites, regionals and the other roles find it by themselves where it was; if its
address is another one, see docs/operations.md.

The fleet is then as it was when the backup was made. Sites that joined since are unknown and have
to join again; what was deleted or edited since is back as it was.`,
		Example: `  muster restore /var/backups/muster-2026-11-26.tar.gz --config muster.yaml
  age -d -i key.txt muster.tar.gz.age | muster restore -`, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.load(cmd)
			if err != nil {
				return err
			}
			in := cmd.InOrStdin()
			if args[0] != "-" {
				file, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer file.Close()
				in = file
			}
			m, err := control.Restore(c, in)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "restored %s as it was at %s, by Muster %s; start `muster control`, or `muster up`\n", control.Dir(c), m.Created.Format(time.RFC3339), m.Muster)
			return nil
		}}
}
