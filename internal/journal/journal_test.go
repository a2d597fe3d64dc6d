package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/testkit/faultdisk"
)

// list is a state for tests: words, of which a change adds one.
type list struct {
	file  *File
	words []string
}

func open(t *testing.T, fsys disk.FS, name string) *list {
	t.Helper()
	l := &list{file: New(fsys, name, 0o600)}
	whole, changes, err := l.file.Load()
	if errors.Is(err, fs.ErrNotExist) {
		return l
	}
	if err != nil {
		t.Fatal(err)
	}
	l.words = strings.Fields(string(whole))
	for _, c := range changes {
		l.words = append(l.words, string(c))
	}
	return l
}

func (l *list) add(word string) error {
	words := append(slices.Clone(l.words), word)
	err := l.file.Write([]byte(word), func() ([]byte, error) { return []byte(strings.Join(words, " ")), nil })
	if err == nil {
		l.words = words
	}
	return err
}

func TestChangesAreAppendedUntilTheFileIsWrittenWhole(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	l := open(t, disk.OS{}, name)
	size := func(name string) int64 {
		st, err := os.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return 0
		}
		if err != nil {
			t.Fatal(err)
		}
		return st.Size()
	}
	var written, before int64
	const n, length = 400, 1000
	for i := range n {
		if err := l.add(fmt.Sprintf("%0*d", length, i)); err != nil {
			t.Fatal(err)
		}
		if whole := size(name); whole != before {
			written, before = written+whole, whole
		} else {
			written += length + 10
		}
		if log := size(name + Suffix); log > max(before, minChanges) {
			t.Fatalf("%d bytes of changes beside a file of %d", log, before)
		}
		if i%37 == 0 { // as a restart does
			if l = open(t, disk.OS{}, name); len(l.words) != i+1 || l.words[i] != fmt.Sprintf("%0*d", length, i) {
				t.Fatalf("%d words after %d were written", len(l.words), i+1)
			}
		}
	}
	if content := int64(n * length); written > 4*content {
		t.Errorf("%d bytes were written for %d", written, content)
	}
}

// TestWhatAnEarlierVersionWrote: it knows the file alone; the changes of another file are void,
// and are written over.
func TestWhatAnEarlierVersionWrote(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	l := open(t, disk.OS{}, name)
	for _, w := range []string{"a", "b", "c"} {
		if err := l.add(w); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if l = open(t, disk.OS{}, name); !slices.Equal(l.words, []string{"x"}) {
		t.Fatalf("%q", l.words)
	}
	if err := l.add("y"); err != nil {
		t.Fatal(err)
	}
	if l = open(t, disk.OS{}, name); !slices.Equal(l.words, []string{"x", "y"}) {
		t.Errorf("%q", l.words)
	}
	if st, err := os.Stat(name + Suffix); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
}

// TestPowerLoss cuts the power before each operation in turn: whatever was said to be written
// is there after it, in order, and at most the one that was being written beside it. So it is
// after a second cut, and writing goes on behind what is torn.
func TestPowerLoss(t *testing.T) {
	for cut := range 40 {
		for seed := range uint64(4) {
			dir := t.TempDir()
			name := filepath.Join(dir, "f")
			d := faultdisk.New(t, dir)
			l := open(t, d, name)
			var said []string
			for round := range 2 {
				d.PowerOffAfter(cut)
				var under string
				for i := 0; under == "" && i < 8; i++ {
					// Long enough that the fourth replaces the file.
					word := fmt.Sprintf("%d-%d-%s", round, i, strings.Repeat("x", minChanges/3))
					if err := l.add(word); err != nil {
						under = word
					} else {
						said = append(said, word)
					}
				}
				d.Crash(seed)
				l = open(t, d, name)
				if !slices.Equal(l.words, said) && !slices.Equal(l.words, append(slices.Clone(said), under)) {
					t.Fatalf("cut %d, seed %d: %d words, told of %d", cut, seed, len(l.words), len(said))
				}
				said = slices.Clone(l.words)
			}
		}
	}
}

// TestADiskThatFails: after an error nothing is appended behind what may be torn.
func TestADiskThatFails(t *testing.T) {
	for _, op := range []string{"open", "create", "write", "sync", "syncdir", "rename"} {
		dir := t.TempDir()
		name := filepath.Join(dir, "f")
		d := faultdisk.New(t, dir)
		l := open(t, d, name)
		for i := range 6 {
			if i == 1 || i == 3 {
				d.Fail(op, errors.New("input/output error"))
				_ = l.add(fmt.Sprint("lost", i)) // there or not
				d.Fail(op, nil)
				continue
			}
			if err := l.add(fmt.Sprint(i)); err != nil {
				t.Fatalf("%s, %d: %v", op, i, err)
			}
		}
		got := slices.DeleteFunc(open(t, d, name).words, func(w string) bool { return strings.HasPrefix(w, "lost") })
		if want := []string{"0", "2", "4", "5"}; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", op, got, want)
		}
	}
}

// FuzzParse: whatever stands in the file, what counts are whole lines at its beginning.
func FuzzParse(f *testing.F) {
	var digest [32]byte
	l := &File{digest: digest}
	f.Add(append(l.line([]byte("one")), l.line([]byte("two"))...))
	f.Add([]byte("00000000 x\n"))
	f.Fuzz(func(t *testing.T, log []byte) {
		changes, size := parse(digest, log)
		var again []byte
		for _, c := range changes {
			again = append(again, l.line(c)...)
		}
		if string(again) != string(log[:size]) {
			t.Errorf("%q was read as %q", log[:size], again)
		}
	})
}
