package quota

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"muster.dev/muster/internal/fleet"
)

// registry is the prefix of kube-apiserver's keys.
const registry = "/registry/"

const (
	page       = 200 // keys a read: objects have up to 1.5 MB
	statusEach = 15 * time.Second
	again      = time.Second // after a watch broke
)

// tenantOfNamespace reads the label of a stored Namespace.
func tenantOfNamespace(value []byte) string {
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(value, nil, nil)
	if ns, ok := obj.(*corev1.Namespace); ok && err == nil {
		return ns.Labels[fleet.LabelTenant]
	}
	return ""
}

// OwnReporter tells whether events of a component are Muster's own; admission keeps
// others from writing such.
func OwnReporter(component string) bool { return strings.HasPrefix(component, "muster-") }

// ownEvent tells whether a stored Event is one that Muster wrote.
func ownEvent(value []byte) bool {
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(value, nil, nil)
	ev, ok := obj.(*corev1.Event)
	return ok && err == nil && (OwnReporter(ev.Source.Component) || OwnReporter(ev.ReportingController))
}

// Load reads everything and returns the revision that it is of.
func (l *Ledger) Load(ctx context.Context, c *clientv3.Client) (revision int64, err error) {
	fresh := New(l.o)
	// Namespaces first: they say whose the other objects are.
	for _, prefix := range []string{registry + keyNamespaces, registry} {
		if revision, err = fresh.read(ctx, c, prefix, revision); err != nil {
			return 0, fmt.Errorf("count what is in etcd: %w", err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, t := range l.tenants { // a new reading gives nobody a new write budget
		if now := fresh.tenantLocked(name); now != nil {
			now.writes = t.writes
		}
	}
	l.spaces, l.tenants = fresh.spaces, fresh.tenants
	return revision, nil
}

func (l *Ledger) read(ctx context.Context, c *clientv3.Client, prefix string, revision int64) (int64, error) {
	from := prefix
	for {
		resp, err := c.Get(ctx, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(page), clientv3.WithRev(revision))
		if err != nil {
			return 0, err
		}
		if revision == 0 {
			revision = resp.Header.Revision
		}
		for _, kv := range resp.Kvs {
			l.Set(strings.TrimPrefix(string(kv.Key), registry), kv.Value)
		}
		if !resp.More {
			return revision, nil
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}

// Follow keeps the count true from a revision on, until ctx ends. When the watch
// breaks, everything is read again.
func (l *Ledger) Follow(ctx context.Context, c *clientv3.Client, revision int64, log *slog.Logger) {
	go l.watchStore(ctx, c)
	for {
		err := l.watch(ctx, c, revision)
		for err != nil {
			select {
			case <-ctx.Done():
				return
			case <-time.After(again):
			}
			log.Warn("the count of what tenants store is read again", "err", err)
			revision, err = l.Load(ctx, c)
		}
	}
}

func (l *Ledger) watch(ctx context.Context, c *clientv3.Client, revision int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for resp := range c.Watch(clientv3.WithRequireLeader(ctx), registry, clientv3.WithPrefix(), clientv3.WithRev(revision+1), clientv3.WithFragment()) {
		if err := resp.Err(); err != nil {
			return err
		}
		for _, ev := range resp.Events {
			key := strings.TrimPrefix(string(ev.Kv.Key), registry)
			if ev.Type == clientv3.EventTypeDelete {
				l.Delete(key)
			} else {
				l.Set(key, ev.Kv.Value)
			}
		}
	}
	return errors.New("the watch ended")
}

// watchStore looks how full etcd is.
func (l *Ledger) watchStore(ctx context.Context, c *clientv3.Client) {
	for {
		var worst Store
		for _, endpoint := range c.Endpoints() {
			if st, err := c.Status(ctx, endpoint); err == nil && st.DbSizeInUse >= worst.InUse {
				worst = Store{InUse: st.DbSizeInUse, Size: st.DbSize, Quota: st.DbSizeQuota}
			}
		}
		l.SetStore(worst)
		select {
		case <-ctx.Done():
			return
		case <-time.After(statusEach):
		}
	}
}
