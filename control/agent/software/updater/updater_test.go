package updater

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster.dev/muster/internal/disk"
)

// A file that an updater still reads is not written over.
func TestSpool(t *testing.T) {
	d := Dir{Path: filepath.Join(t.TempDir(), "updates"), FS: disk.OS{}}
	path, digest, err := d.Spool(t.Context(), "image", strings.NewReader("first"), 5)
	if err != nil || digest != "a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e" {
		t.Fatalf("%s, %v", digest, err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, _, err := d.Spool(t.Context(), "image", strings.NewReader("second"), 6); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 6)
	if n, _ := f.ReadAt(b, 0); string(b[:n]) != "first" {
		t.Errorf("who reads the first file sees %q", b[:n])
	}
	for _, size := range []int64{5, 7} {
		if _, _, err := d.Spool(t.Context(), "image", strings.NewReader("second"), size); err == nil {
			t.Errorf("6 bytes were taken for %d", size)
		}
	}
}

func TestExecSaysWhy(t *testing.T) {
	out, err := Exec(t.Context(), "sh", "-c", "echo said; echo why >&2; exit 3")
	if string(out) != "said\n" || err == nil || !strings.HasSuffix(err.Error(), "exit status 3: why") {
		t.Errorf("%q, %v", out, err)
	}
}

// Whatever is in the file: facts that come out as they went in, or an error.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(`{"trial":"b","slots":{"b":{"version":"2.0.0","digest":"x"}}}`))
	f.Add([]byte(`{"slots":null}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, b []byte) {
		d := Dir{Path: t.TempDir(), FS: disk.OS{}}
		if err := os.WriteFile(filepath.Join(d.Path, "facts.json"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		facts, err := d.Load()
		if err != nil {
			return
		}
		if facts.Slots == nil {
			t.Fatal("nothing can be kept in it")
		}
		if bytes.ContainsRune(b, '\ufffd') || !strings.Contains(string(b), "trial") {
			return
		}
		facts.Trial += "x"
		if err := d.Save(facts); err != nil {
			t.Fatal(err)
		}
		if again, err := d.Load(); err != nil || !again.equal(facts) {
			t.Errorf("%+v became %+v, %v", facts, again, err)
		}
	})
}
