package apiserver_test

import (
	"errors"
	"net"
	"net/url"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"muster.dev/muster/internal/strangers"
	"muster.dev/muster/internal/testkit/kubeapi"
)

// Connections of one address that say nothing are bounded, and others are served. The server
// itself closes silent ones in time, the first one first.
func TestConnectionsThatSayNothing(t *testing.T) {
	cfg := kubeapi.Start(t)
	at, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	var silent []net.Conn
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}}
	for range strangers.Usual.PerHost + 1 {
		c, err := from.DialContext(t.Context(), "tcp", at.Host)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		silent = append(silent, c)
	}
	reads := func(c net.Conn, patience time.Duration) error {
		_ = c.SetReadDeadline(time.Now().Add(patience))
		_, err := c.Read(make([]byte, 1))
		return err
	}
	if err := reads(silent[len(silent)-1], time.Minute); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the one beyond the bound: %v", err)
	}
	if err := reads(silent[0], time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the first one: %v", err)
	}
	if _, err := kubernetes.NewForConfigOrDie(cfg).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{Limit: 1}); err != nil {
		t.Error(err)
	}
}
