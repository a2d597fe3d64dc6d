package images

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// record is what the agent and the guard know of each other: the key record.json of the
// ConfigMap RecordName. Each changes it only as it last was, so that neither overrules what
// the other did in between.
type record struct {
	// Good is what was marked good, or was there first; Other was before it, or comes next.
	Good  release  `json:"good"`
	Other *release `json:"other,omitempty"`
	Trial *trial   `json:"trial,omitempty"`
	// Ended counts the trials after which the old images were put back, and Why is what the
	// guard knows of the last one.
	Ended int    `json:"ended,omitempty"`
	Why   string `json:"why,omitempty"`
}

// release is a version in a slot.
type release struct {
	Version string `json:"version"`
	// File is what was released; empty: it was installed by hand.
	File     string `json:"file,omitempty"`
	Verified bool   `json:"verified,omitempty"`
	// Images are what stood in the workloads when it ran, by their names.
	Images map[string]string `json:"images,omitempty"`
}

// whole tells whether it may be switched to.
func (r *release) whole() bool { return r != nil && (r.Verified || len(r.Images) > 0) }

// trial is Other, being tried.
type trial struct {
	Version string `json:"version"`
	// Images are written by the guard before it changes the first; none: it has not begun.
	Images map[string]change `json:"images,omitempty"`
	// Mark is the Annotation that the Deployment had.
	Mark string `json:"mark,omitempty"`
	// Away is how many nodes lacked a ready pod of the DaemonSet before it began.
	Away int32 `json:"away,omitempty"`
	// Seconds that the guard has waited: for the DaemonSet, and anew once Agent is set,
	// which is before it exchanges the agent's own image.
	Seconds int  `json:"seconds,omitempty"`
	Agent   bool `json:"agent,omitempty"`
	// Hosts says what the DaemonSet lacks; empty: nothing.
	Hosts string `json:"hosts,omitempty"`
	// Back: the old images are put back.
	Back bool `json:"back,omitempty"`
}

// endTrial has the guard put back what it has exchanged, if it has begun.
func (r *record) endTrial() {
	switch {
	case r.Trial == nil:
	case r.Trial.Images == nil:
		r.Trial = nil
	default:
		r.Trial.Back = true
	}
}

// change of a workload's image.
type change struct {
	Old string `json:"old"`
	New string `json:"new"`
}

// Reference is the file of a version: an image of the repository that the site's operator
// chose.
type Reference struct {
	// Digest of the image or its index, such as sha256:6d2f….
	Digest string `json:"digest"`
	// Tag is for people: the digest alone says what is pulled. Empty: none.
	Tag string `json:"tag,omitempty"`
}

// maxFile is the largest Reference in bytes.
const maxFile = 4 << 10

var (
	digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	tagForm    = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
)

// ParseReference reads the file of a version.
func ParseReference(b []byte) (Reference, error) {
	var r Reference
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		return r, fmt.Errorf("reference of an image: %w; want {\"digest\": \"sha256:…\"}, as muster software add --image makes it", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return r, errors.New("reference of an image: something stands after the object")
	}
	return r, r.Validate()
}

// Validate names the field that can't be.
func (r Reference) Validate() error {
	switch {
	case !digestForm.MatchString(r.Digest):
		return fmt.Errorf("reference of an image: digest: %.80q: want sha256: and 64 hexadecimal digits", r.Digest)
	case r.Tag != "" && !tagForm.MatchString(r.Tag):
		return fmt.Errorf("reference of an image: tag: %.130q: want letters, digits, _, . and -", r.Tag)
	}
	return nil
}

// In is the image in a repository.
func (r Reference) In(repository string) string {
	if r.Tag != "" {
		repository += ":" + r.Tag
	}
	return repository + "@" + r.Digest
}

// Split cuts the name of an image into its repository, as it was written, its tag and its
// digest; what is not there is empty.
func Split(image string) (repository, tag, digest string) {
	repository, digest, _ = strings.Cut(image, "@")
	// The last colon is the tag's, unless a slash follows: then it is a port.
	if i := strings.LastIndexByte(repository, ':'); i > strings.LastIndexByte(repository, '/') {
		repository, tag = repository[:i], repository[i+1:]
	}
	return repository, tag, digest
}

// sum is the SHA-256 of a file, in hex.
func sum(file string) string {
	s := sha256.Sum256([]byte(file))
	return hex.EncodeToString(s[:])
}

// records is where the record is.
type records struct {
	client    kubernetes.Interface
	namespace string
}

const recordKey = "record.json"

func (s records) explain(err error) error {
	name := s.namespace + "/" + RecordName
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("the ConfigMap %s is not there; apply the manifest with the feature upgrades again: %w", name, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("the service account may not get and update the ConfigMap %s; apply the manifest with the feature upgrades again: %w", name, err)
	}
	return fmt.Errorf("the ConfigMap %s: %w", name, err)
}

func parse(data map[string]string) (r record, err error) {
	text := data[recordKey]
	if text == "" {
		return r, nil
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, fmt.Errorf("%s: %w; empty it if the site runs what it shall", recordKey, err)
	}
	return r, nil
}

// load returns the record; the zero one if there is none yet.
func (s records) load(ctx context.Context) (record, error) {
	cm, err := s.client.CoreV1().ConfigMaps(s.namespace).Get(ctx, RecordName, metav1.GetOptions{})
	if err != nil {
		return record{}, s.explain(err)
	}
	r, err := parse(cm.Data)
	if err != nil {
		return r, s.explain(err)
	}
	return r, nil
}

// edit changes the record as it is now, and writes it if it is another one then. Where
// somebody else was faster, change is called again with what that one left.
func (s records) edit(ctx context.Context, change func(*record) error) (out record, err error) {
	maps := s.client.CoreV1().ConfigMaps(s.namespace)
	var refused error
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		cm, err := maps.Get(ctx, RecordName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if out, err = parse(cm.Data); err != nil {
			return err
		}
		if refused = change(&out); refused != nil {
			return nil
		}
		b, err := json.Marshal(out)
		if err != nil {
			return err
		}
		if cm.Data[recordKey] == string(b) {
			return nil
		}
		if cm.Data == nil {
			cm.Data = map[string]string{}
		}
		cm.Data[recordKey] = string(b)
		_, err = maps.Update(ctx, cm, metav1.UpdateOptions{FieldManager: manager})
		return err
	})
	if err != nil {
		return out, s.explain(err)
	}
	return out, refused
}
